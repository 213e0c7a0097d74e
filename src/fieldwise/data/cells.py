"""Cells of text: markers of null, spaces around values, decimal commas; the same for training and new rows."""

from collections.abc import Sequence
from typing import Final, Literal

import pyarrow as pa
import pyarrow.compute as pc

from fieldwise.core.records import Record

NULLS: Final = ("?", "-", "NA", "N/A", "n/a", "#N/A", "<NA>", "NULL", "Null", "null", "NaN", "nan", "None", "\\N")
"""Texts that mean null in published files."""
DECIMAL_COMMA: Final = r"^([-+]?[0-9]*),([0-9]+)$"
"""A number with a decimal comma."""


class Cells(Record):
    """How cells of text are read."""

    nulls: tuple[str, ...] = ()
    """Texts that mean null."""
    decimal: Literal[".", ","] = "."
    """The decimal sign of numbers."""
    trim: bool = False
    """Whether spaces around a value do not belong to it."""

    @property
    def unchanged(self) -> bool:
        """Whether text stays as it is."""
        return not self.nulls and self.decimal == "." and not self.trim

    def clean(self, column: pa.Array) -> pa.Array:
        """Applies the settings to text; other types, and text that is clean already, stay as they are."""
        if self.unchanged:
            return column
        if pa.types.is_dictionary(column.type):
            before = column.dictionary
            values = self.clean(before)
            return column if values is before else _redirected(column, values)
        if pa.types.is_large_string(column.type) or pa.types.is_string_view(column.type):
            column = column.cast(pa.string())
        if not pa.types.is_string(column.type):
            return column
        if self.trim:
            column = pc.utf8_trim(column, " \t")
            column = pc.if_else(pc.equal(column, ""), pa.scalar(None, pa.string()), column)
        if self.nulls:
            marked = pc.is_in(column, value_set=pa.array(self.nulls))
            column = pc.if_else(marked, pa.scalar(None, pa.string()), column)
        if self.decimal == ",":
            column = pc.replace_substring_regex(column, DECIMAL_COMMA, r"\1.\2")
        return column


def _redirected(column: pa.Array, values: pa.Array) -> pa.Array:
    """Returns a dictionary array with other values, of which several may be equal or null."""
    encoded = values.dictionary_encode()
    places = pc.take(encoded.indices, column.indices)
    return pa.DictionaryArray.from_arrays(places, encoded.dictionary)


def has_decimal_commas(columns: Sequence[pa.ChunkedArray]) -> bool:
    """Returns whether some column holds numbers with decimal commas; groups of thousands (1,234) are not proof."""
    for column in columns:
        text = pc.drop_null(Cells(nulls=NULLS).clean(column.combine_chunks()))
        text = text.filter(pc.not_equal(text, ""))
        if not len(text) or not pc.all(pc.match_substring_regex(text, r"^[-+]?[0-9]*(,[0-9]+)?$")).as_py():
            continue
        commas = text.filter(pc.match_substring(text, ","))
        if len(commas) and not pc.all(pc.match_substring_regex(commas, r",[0-9]{3}$")).as_py():
            return True
    return False
