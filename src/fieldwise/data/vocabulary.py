"""The values of a field and their ids."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from fieldwise.core.files import replacing
from fieldwise.core.schema import UNKNOWN
from fieldwise.data.convert import moments, plain_times


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Known values, the most frequent first; a value's id is its place counted from 1. Null is a value too."""

    values: pa.Array
    counts: pa.Array

    @property
    def cardinality(self) -> int:
        """Known values and `unknown`."""
        return len(self.values) + 1

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        return int(self.values.nbytes + self.counts.nbytes)

    def encode(self, column: pa.Array) -> NDArray[np.int32]:
        """The ids of values, (rows,); unseen ones become `unknown`.

        Days, times and text are compared as times where either side is one; other values of another type as text.
        """
        known, null = self.values, column.is_null()
        if pa.types.is_null(column.type):
            column = column.cast(known.type)
        elif column.type != known.type:
            timed = _is_moment(column.type) or _is_moment(known.type)
            column, known = (moments(a) if timed else a.cast(pa.string()) for a in (column, known))
        places = pc.index_in(column, value_set=known, skip_nulls=True)
        ids = pc.if_else(null, self._null_id, pc.fill_null(pc.add(places, 1), UNKNOWN)).to_numpy(zero_copy_only=False)
        return np.asarray(ids, dtype=np.int32)

    def texts(self, column: pa.Array) -> pa.Array:
        """Values as text; known ones as the vocabulary writes them, whatever type or form they come in."""
        ids = self.encode(column)
        known = self.values.cast(pa.string()).take(pa.array(ids - 1, mask=ids == UNKNOWN))
        return pc.coalesce(known, column.cast(pa.string()))

    @property
    def _null_id(self) -> int:
        return int(np.flatnonzero(self.values.is_null())[0]) + 1 if self.values.null_count else UNKNOWN

    def save(self, path: Path) -> None:
        """Writes Parquet with the columns value and count; the first row has id 1."""
        with replacing(path) as work:
            pq.write_table(pa.table({"value": self.values, "count": self.counts}), work)

    @classmethod
    def load(cls, path: Path) -> "Vocabulary":
        """The inverse of `save`."""
        table = pq.read_table(path).combine_chunks()
        values = table["value"].combine_chunks()
        # older folders hold times with zones and of other units
        values = plain_times(values) if pa.types.is_temporal(values.type) else values
        return cls(values, table["count"].combine_chunks())


def _is_moment(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) or pa.types.is_date(kind))


class Counter:
    """Counts the values of one field, batch by batch."""

    def __init__(self) -> None:
        self._parts: list[pa.Table] = []

    def add(self, column: pa.Array, counts: pa.Array | None = None) -> None:
        """Counts one batch more; each value once, or as often as `counts` says."""
        if counts is None:
            found = pc.value_counts(column)
            column, counts = found.field("values"), found.field("counts")
        self._parts.append(pa.table({"value": column, "count": counts.cast(pa.int64())}))
        if len(self._parts) >= 32:  # keeps memory bound by the values, not by the rows
            self.merge()

    def merge(self) -> None:
        """Brings what was added into as little memory as it needs."""
        self._parts = [self.table()]

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        return sum(part.nbytes for part in self._parts)

    def table(self) -> pa.Table:
        """The columns value and count, each value once, in no order."""
        merged = pa.concat_tables(self._parts).group_by("value").aggregate([("count", "sum")])
        return merged.rename_columns({"count_sum": "count"}).select(["value", "count"])

    def vocabulary(self, min_count: int, but: int | None = None) -> Vocabulary:
        """Values seen at least `min_count` times, by falling count, then by value (text by its UTF-8 bytes).

        The value `but` is left out.
        """
        table = self.table()
        table = table.filter(pc.greater_equal(table["count"], min_count))
        if but is not None:
            table = table.filter(pc.fill_null(pc.not_equal(table["value"], but), True))
        table = table.sort_by([("count", "descending"), ("value", "ascending")]).combine_chunks()
        return Vocabulary(table["value"].combine_chunks(), table["count"].combine_chunks())
