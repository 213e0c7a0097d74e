"""Encodes the raw values of one field to ids."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, NamedTuple, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fieldwise.core.errors import DataError
from fieldwise.core.schema import PADDING, UNKNOWN, Tier
from fieldwise.data.cells import Cells
from fieldwise.data.rules import Rule, is_list, plain
from fieldwise.data.times import TIMESTAMP, find_form
from fieldwise.data.vocabulary import Vocabulary, is_timestamp

_AS_WRITTEN: Final = Cells()
_FEW: Final = 1_000
"""Rows that show whether values repeat; fewer rows are encoded one by one."""
TimeType = Literal["timestamp", "date"]
"""Type of times that are binned as numbers: microseconds, or days since 1970."""


class Encoded(NamedTuple):
    """Encoded rows of one field."""

    ids: NDArray[np.int32]
    """(rows, length)."""
    nulls: NDArray[np.bool_]
    """(rows,): rows without a value."""
    unparsed: NDArray[np.bool_]
    """(rows,): rows with text that is no time, in a field that reads times."""


@dataclass(frozen=True, slots=True)
class FieldEncoder:
    """The rule and vocabulary of one field, and its maximum number of values per row."""

    name: str
    rule: Rule
    vocabulary: Vocabulary
    length: int = 1
    several: bool = False
    times: TimeType | None = None
    """Type of the training values if they were times that are binned as numbers."""
    cells: Cells = _AS_WRITTEN
    """How text is read."""
    tier: Tier | None = None
    """The values of the column that are this field's; those of the other tier are `unknown` here."""

    def check_type(self, kind: pa.DataType) -> None:
        """Refuses a column whose values can be no values of the field: structs, bytes, lists where one is expected."""
        inner = kind.value_type if pa.types.is_dictionary(kind) else kind
        inner = inner.value_type if self.several and is_list(inner) else inner
        if pa.types.is_nested(inner) or pa.types.is_binary(inner) or pa.types.is_large_binary(inner):
            lists = ", and lists of them" if self.several else ""
            raise DataError(
                f"Column '{self.rule.column or self.name}' holds {kind}. Allowed: text, numbers and times{lists}. "
                "Give the column as the model was trained with it."
            )
        known = self.vocabulary.values
        is_text = pa.types.is_string(known.type) and self.rule.kind == "category" and self.rule.time_format is None
        if is_timestamp(inner) and is_text and find_form(known.slice(0, 1_000)).ambiguous:
            raise DataError(
                f"Column '{self.rule.column or self.name}' holds {kind}; the model was trained with text such as "
                f"{known.drop_null()[0].as_py()!r:.40}. Give text in that form."
            )

    @property
    def reads_times(self) -> bool:
        """Whether text in this field must be a time."""
        return self.rule.is_time or self.times is not None or is_timestamp(self.vocabulary.values.type)

    def ids(self, column: pa.Array) -> NDArray[np.int32]:
        """Returns the ids of raw values, (rows, length)."""
        return self.encode(column).ids

    def encode(self, column: pa.Array) -> Encoded:
        """Encodes raw values; values that are costly to encode and repeat, and those of a dictionary array, once."""
        column = self.cells.clean(column.dictionary_encode() if self._repeats(column) else column)
        if pa.types.is_dictionary(column.type):
            values = column.dictionary
            part = self.encode(pa.concat_arrays([values, pa.nulls(1, values.type)]))
            places: NDArray[np.int32] = pc.fill_null(column.indices, len(values)).to_numpy(zero_copy_only=False)
            bad = part.unparsed.take(places) if self.reads_times else np.zeros(len(places), bool)
            return Encoded(part.ids.take(places, axis=0), part.nulls.take(places), bad)
        lists = self.rule.lists(column) if self.several else None
        if lists is None:
            part = self._single(column)
            missing = ((0, 0), (0, self.length - 1))
            ids = part.ids if self.length == 1 else np.pad(part.ids, missing, constant_values=PADDING)
            return part._replace(ids=ids)
        lists = pc.list_slice(lists, 0, self.length)
        rows = np.asarray(pc.list_parent_indices(lists))
        lengths = np.asarray(pc.list_value_length(lists))
        starts = np.cumsum(lengths) - lengths
        found = np.full((len(lists), self.length), PADDING, dtype=np.int32)
        part = self._single(self.cells.clean(lists.flatten()))
        found[rows, np.arange(len(rows)) - starts[rows]] = part.ids[:, 0]
        bad = np.bincount(rows[part.unparsed], minlength=len(lists)) > 0
        return Encoded(found, np.asarray(column.is_null()), bad)

    def _repeats(self, column: pa.Array) -> bool:
        """Whether values are converted before they are looked up, and the first ones repeat."""
        kind, known = column.type, self.vocabulary.values.type
        is_text = bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))
        if len(column) < _FEW or not (is_text or pa.types.is_integer(kind) or pa.types.is_floating(kind)):
            return False
        looked_up = self.rule.keeps_values and not self.reads_times and (self.cells.unchanged or not is_text)
        if looked_up and is_text == pa.types.is_string(known):
            return False
        return bool(pc.count_distinct(column.slice(0, _FEW)).as_py() <= _FEW // 2)

    def _single(self, column: pa.Array) -> Encoded:
        """Encodes one value per row."""
        values = self.rule.apply(self.as_trained(column))
        ids = self.vocabulary.encode(values, self.rule.time_format)
        return Encoded(ids[:, None], np.asarray(values.is_null()), self._unparsed(column, values, ids))

    def as_trained(self, column: pa.Array) -> pa.Array:
        """Converts text and times to the type of the training values, where times are binned as numbers."""
        if self.times is None:
            return column
        column = plain(column)
        if not is_timestamp(column.type):
            column = self.rule.times(column) if pa.types.is_string(column.type) else column
        if not is_timestamp(column.type):
            return column
        return column.cast(TIMESTAMP).cast(pa.date32(), safe=False) if self.times == "date" else column.cast(TIMESTAMP)

    def _unparsed(self, column: pa.Array, values: pa.Array, ids: NDArray[np.int32]) -> NDArray[np.bool_]:
        """Returns a mask of the texts that are no times."""
        bad = np.zeros(len(column), bool)
        column = plain(column) if self.reads_times else column
        if not self.reads_times or pa.types.is_temporal(column.type):
            return bad
        suspect = np.asarray(values.is_null()) | (ids == UNKNOWN)
        text = pc.utf8_trim_whitespace(column.cast(pa.string()))
        suspect &= np.asarray(pc.fill_null(pc.not_equal(text, ""), False))
        bad[suspect] = np.asarray(self.rule.times(column.filter(pa.array(suspect))).is_null())
        return bad


def tier_runs(fields: Sequence[FieldEncoder]) -> dict[int, tuple[FieldEncoder, int]]:
    """Returns tiers of one column that follow each other as one field, with the ids of later tiers last.

    By the index of the first, with their number.
    """
    runs: dict[int, tuple[FieldEncoder, int]] = {}
    start = 0
    for end in range(1, len(fields) + 1):
        if end < len(fields) and _follows(fields[end - 1], fields[end]):
            continue
        if end - start > 1:
            own = fields[start:end]
            joined = pa.concat_arrays([field.vocabulary.values for field in own])
            whole = replace(own[0].vocabulary, values=joined, counts=pa.nulls(len(joined)))
            runs[start] = replace(own[0], vocabulary=whole, tier=None), end - start
        start = end
    return runs


def _follows(one: FieldEncoder, other: FieldEncoder) -> bool:
    """Returns whether the second field is a later tier of the first one's column."""
    order = get_args(Tier)
    if one.tier is None or other.tier is None or order.index(one.tier) >= order.index(other.tier):
        return False
    return one.rule == other.rule and one.vocabulary.values.type == other.vocabulary.values.type
