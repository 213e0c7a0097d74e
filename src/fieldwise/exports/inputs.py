"""The inputs of a graph: one tensor per raw column, whose type follows from the rules of its fields.

| kind | fields | tensor | null |
|---|---|---|---|
| text | categories of text, dates or booleans | string (B,) | the graph's null text |
| whole | categories of integers; uint64 by its bits | int64 (B,) | -2**63 |
| number | bins of numbers, categories of floats | double (B,) | NaN |
| time | hour, weekday, weekend | int64 (B,), seconds since 1970, in UTC for times with a zone | -2**63 |

Text with a separator is split inside the graph. Other fields with several values per row take a tensor (B, K) of any
K, and a second tensor `NAME.length` (B,) with the number of valid values per row; an empty list is one null.
"""

from typing import Any, Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fieldwise.core.errors import DataError
from fieldwise.core.records import Record
from fieldwise.data.convert import integers
from fieldwise.data.encoder import Encoder
from fieldwise.data.field_encoder import FieldEncoder
from fieldwise.data.rules import BRACKETS, Rule, not_numbers, numbers_of

Kind = Literal["text", "whole", "number", "time"]
NULL_WHOLE: Final = -(2**63)
_UNSEEN: Final = -0x6A09E667F3BCC908
"""Sentinel for a value that is not an integer in a column of integers; a collision is practically impossible."""


class Input(Record):
    """One tensor of a graph."""

    name: str
    column: str
    kind: Kind
    several: bool
    """Whether a row holds a list; its length is then a second input."""
    null: str | None
    """The text that represents null; only for kind text."""

    @property
    def length_name(self) -> str:
        """Name of the input with the number of valid values per row."""
        return f"{self.name}.length"


def inputs_of(encoder: Encoder) -> list[Input]:
    """Returns the input of each field; fields of the same column and kind share an input."""
    keys = [(f.rule.column or f.name, _kind(f), f.several and not splits_in_graph(f)) for f in encoder.fields]
    columns = [column for column, _, _ in dict.fromkeys(keys)]
    null = _null_text(encoder)
    return [
        Input(
            name=column if columns.count(column) == 1 and column != "probability" else f"{column}.{kind}",
            column=column,
            kind=kind,
            several=several,
            null=null if kind == "text" else None,
        )
        for column, kind, several in keys
    ]


def splits_in_graph(field: FieldEncoder) -> bool:
    """Returns whether a field's text is split inside the graph."""
    return field.several and field.rule.separator not in (None, BRACKETS) and _kind(field) == "text"


def feeds(encoder: Encoder, rows: Any) -> dict[str, NDArray[Any]]:
    """Returns the input tensors for raw rows: a dict of columns, or anything with an Arrow stream."""
    table, tensors = encoder.table(rows), {}
    encoder = encoder.untiered()  # one tensor has the spelling of all tiers
    timed = Encoder([field for field in encoder.fields if field.reads_times])
    timed.encode(table)  # refuses text that is no time
    pairs = zip(encoder.fields, inputs_of(encoder), strict=True)
    # fields that share a tensor: the one with the largest vocabulary defines the format, so it comes last
    for field, entry in sorted(pairs, key=lambda pair: pair[0].vocabulary.cardinality):
        column = field.cells.clean(table[entry.column].combine_chunks())
        if entry.several:
            tensors[entry.name], tensors[entry.length_name] = _lists(field, entry, column)
        else:
            tensors[entry.name] = _values(field, entry, column)
    return tensors


def _kind(field: FieldEncoder) -> Kind:
    if field.rule.is_number:
        return "number"
    if field.rule.kind != "category":
        return "time"
    kind = field.vocabulary.values.type
    return "whole" if pa.types.is_integer(kind) else "number" if pa.types.is_floating(kind) else "text"


def _null_text(encoder: Encoder) -> str:
    r"""Returns `\N`, as in database dumps, repeated if that is a value of some field; contains no separator."""
    texts = [f for f in encoder.fields if _kind(f) == "text"]
    separators = [f.rule.separator for f in texts if f.rule.separator]
    found = "\\N" if not any(separator in "\\N" * 9 for separator in separators) else "null"
    while any(pc.index(f.vocabulary.values.cast(pa.string()), found).as_py() >= 0 for f in texts):
        found += found
    return found


def _lists(field: FieldEncoder, entry: Input, column: pa.Array) -> tuple[NDArray[Any], NDArray[np.int64]]:
    lists = field.rule.lists(column)
    if lists is None:  # rows with one value each
        return _values(field, entry, column)[:, None], np.ones(len(column), np.int64)
    lists = pc.list_slice(lists, 0, field.length)
    rows, lengths = np.asarray(pc.list_parent_indices(lists)), np.asarray(pc.list_value_length(lists))
    flat = _values(field, entry, lists.flatten())
    values = np.full((len(lists), lengths.max(initial=1)), flat[0] if len(flat) else 0, flat.dtype)
    values[rows, np.arange(len(rows)) - (np.cumsum(lengths) - lengths)[rows]] = flat
    return values, lengths.astype(np.int64)


def _values(field: FieldEncoder, entry: Input, column: pa.Array) -> NDArray[Any]:
    if entry.kind == "number":
        column = field.as_trained(column)
        wrong = not_numbers(column)
        if wrong:
            raise DataError(f"Column '{entry.column}' is a number in the graph, but holds {wrong[:3]}. Fix the rows.")
        numbers, known = numbers_of(column)
        return np.where(known, numbers, np.nan)
    if entry.kind == "time":
        times = field.rule.times(column)
        return _filled(pc.floor_temporal(times, unit="second").cast(pa.timestamp("s")).cast(pa.int64()), NULL_WHOLE)
    plain = Rule().apply(column)
    if entry.kind == "text":
        texts = (
            _split(field, plain) if splits_in_graph(field) else field.vocabulary.texts(plain, field.rule.time_format)
        )
        return np.asarray(texts.fill_null(entry.null).to_pylist(), dtype=object)
    whole = pc.if_else(plain.is_null(), NULL_WHOLE, pc.fill_null(integers(plain), _UNSEEN))
    return _filled(whole, NULL_WHOLE)


def _split(field: FieldEncoder, column: pa.Array) -> pa.Array:
    """Formats the parts of separated text as the vocabulary does; the graph splits the text."""
    lists = pc.split_pattern(column.cast(pa.string()), field.rule.separator)
    texts = pc.coalesce(field.vocabulary.texts(field.cells.clean(lists.values)), lists.values)  # null markers stay
    parts = pa.ListArray.from_arrays(lists.offsets, texts, mask=lists.is_null())
    return pc.binary_join(parts, field.rule.separator)


def _filled(column: pa.Array, null: int) -> NDArray[np.int64]:
    found: NDArray[np.int64] = column.fill_null(null).to_numpy(zero_copy_only=False)
    return found
