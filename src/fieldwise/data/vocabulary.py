"""The values of a field and their ids."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from fieldwise.core.files import replacing
from fieldwise.core.schema import UNKNOWN
from fieldwise.data.convert import Form, form_of, moments, numbers_in, plain_times, rewritten, wholes, written
from fieldwise.data.vocabulary_file import read_columns


@dataclass(frozen=True)
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
        """The ids of values as rules give them, (rows,); unseen ones become `unknown`.

        Values of another type are read as the vocabulary's: numbers and times in text, times as days, whole numbers
        such as 17.0. Where it holds text, they are looked for as they would have been written: 17 also as 17.0, times
        in any ISO form. Text is another text however alike it looks (7 and 07), unless all of the vocabulary is
        written the same way, as whole numbers, as such with .0 behind them, or as true and false.
        """
        known, null = self.values, np.asarray(column.is_null())
        if pa.types.is_null(column.type):
            column = column.cast(known.type)
        if pa.types.is_floating(known.type):
            found, there, bad = numbers_in(column)
            column, null = pa.array(found, mask=~there), ~there & ~bad
        elif pa.types.is_integer(known.type):
            column = wholes(column)
        elif _is_moment(known.type) or _is_moment(column.type):
            column, known = moments(column), moments(known)
        elif pa.types.is_string(known.type):
            return np.where(null, self._null_id, self._texts_ids(column))
        elif column.type != known.type:
            column, known = written(column), written(known)
        return np.where(null, self._null_id, _places(column, known) + 1)

    def _texts_ids(self, column: pa.Array) -> NDArray[np.int32]:
        ids = _places(written(column), self.values) + 1
        rest = np.flatnonzero((ids == UNKNOWN) & np.asarray(column.is_valid()))
        if len(rest):
            column = column.take(pa.array(rest))
            if self._form == "truth" and pa.types.is_string(column.type):
                ids[rest] = _places(pc.utf8_lower(column), pc.utf8_lower(self.values)) + 1
            else:
                other = rewritten(column, self._form)
                if other.null_count < len(other):
                    ids[rest] = _places(other, self.values) + 1
        return ids

    @cached_property
    def _form(self) -> Form | None:
        return form_of(self.values)

    def texts(self, column: pa.Array) -> pa.Array:
        """Values as text; known ones as the vocabulary writes them, whatever type or form they come in."""
        ids = self.encode(column)
        known = self.values.cast(pa.string()).take(pa.array(ids - 1, mask=ids == UNKNOWN))
        return pc.coalesce(known, written(column))

    @property
    def _null_id(self) -> int:
        return int(np.flatnonzero(self.values.is_null())[0]) + 1 if self.values.null_count else UNKNOWN

    def save(self, path: Path) -> None:
        """Writes Parquet with the columns value and count; the first row has id 1."""
        with replacing(path) as work:
            pq.write_table(pa.table({"value": self.values, "count": self.counts}), work)

    @classmethod
    def load(cls, path: Path, rows: int | None = None) -> "Vocabulary":
        """The inverse of `save`; ValueError where it is none, or holds another number of values than `rows`."""
        values, counts = read_columns(path, rows)
        # older folders hold NaN, and times with zones and of other units
        if pa.types.is_temporal(values.type):
            values = plain_times(values)
        elif pa.types.is_floating(values.type):
            values = values.cast(pa.float64())
            values = pc.if_else(pc.is_nan(values), pa.scalar(None, values.type), values)
        elif pa.types.is_integer(values.type):
            values = wholes(values)
        return cls(values, counts)


def _places(column: pa.Array, known: pa.Array) -> NDArray[np.int32]:
    """Where values stand among known ones; -1 of unknown ones and of null."""
    found: NDArray[np.int32] = pc.fill_null(
        pc.index_in(column, value_set=known, skip_nulls=True), UNKNOWN - 1
    ).to_numpy(zero_copy_only=False)
    return found


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
        parts = pa.concat_tables(self._parts)
        threads = len(parts) > 100_000  # starting them takes longer than to group a few values
        merged = parts.group_by("value", use_threads=threads).aggregate([("count", "sum")])
        return merged.rename_columns({"count_sum": "count"}).select(["value", "count"])

    def vocabulary(self, min_count: int, but: int | None = None) -> Vocabulary:
        """Values seen at least `min_count` times, by falling count, then by value (text by its UTF-8 bytes).

        The value `but` is left out.
        """
        table = self.table()
        table = table.filter(pc.greater_equal(table["count"], min_count))
        if pa.types.is_uint64(table["value"].type):
            table = table.set_column(0, "value", wholes(table["value"].combine_chunks()))
        if but is not None:
            table = table.filter(pc.fill_null(pc.not_equal(table["value"], but), True))
        table = table.sort_by([("count", "descending"), ("value", "ascending")]).combine_chunks()
        return Vocabulary(table["value"].combine_chunks(), table["count"].combine_chunks())
