"""Counts rows while they are written, all columns at once, so that counting need not read them again."""

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fieldwise.data.engines.engine import LABEL, SPLIT
from fieldwise.data.vocabulary import Counter

_PART_BYTES: Final = 3 << 10
"""Approximate bytes that a part of a counter takes in addition to its values."""

ValueCounts = dict[str, tuple[pa.Array, pa.Array]]
"""Distinct values and their counts, by column."""


def count_values(rows: pa.Table) -> ValueCounts:
    """Counts the values of staged rows: those of fields in training rows, labels and splits in all rows."""
    train = np.asarray(rows[SPLIT]) == 0
    of_all = {name: counts_of(rows[name], np.ones_like(train)) for name in (LABEL, SPLIT)}
    return {name: of_all.get(name) or counts_of(rows[name], train) for name in rows.column_names}


def counts_of(column: pa.Array | pa.ChunkedArray, chosen: NDArray[np.bool_]) -> tuple[pa.Array, pa.Array]:
    """Returns the distinct values of the chosen rows of a column, and their counts."""
    if not pa.types.is_dictionary(column.type):
        found = pc.value_counts(column.filter(pa.array(chosen)))
        return found.field("values"), found.field("counts")
    column = whole(column)
    values = column.dictionary
    places: NDArray[np.int32] = pc.fill_null(column.indices, len(values)).to_numpy(zero_copy_only=False)
    counts = np.bincount(places.take(np.flatnonzero(chosen)), minlength=len(values) + 1)  # the last are nulls
    seen = np.flatnonzero(counts)
    return pa.concat_arrays([values, pa.nulls(1, values.type)]).take(pa.array(seen)), pa.array(counts[seen])


class WrittenCounts:
    """Counts of written rows; columns whose values take too much memory have none."""

    def __init__(self, max_bytes: int) -> None:
        """Counts values as long as all of them together stay within `max_bytes`."""
        self._max_bytes = max_bytes
        self._counters: dict[str, Counter] = {}
        self._dropped: set[str] = set()

    def add(self, found: ValueCounts) -> None:
        """Adds the counts of further rows."""
        for name, (values, counts) in found.items():
            if name not in self._dropped and (len(values) or name not in self._counters):
                self._counters.setdefault(name, Counter()).add(values, counts)
        if sum(map(_size, self._counters.values())) > self._max_bytes:
            self._shrink()

    def _shrink(self) -> None:
        """Merges equal values; then drops the largest counters until half of the bytes are free."""
        for counter in self._counters.values():
            counter.merge()
        sizes = {name: _size(counter) for name, counter in self._counters.items()}
        taken = sum(sizes.values())
        for name in sorted(sizes, key=lambda name: -sizes[name]):
            if taken <= self._max_bytes // 2:
                return
            taken -= sizes[name]
            del self._counters[name]
            self._dropped.add(name)

    def join(self, other: "WrittenCounts") -> None:
        """Adds the counts of rows that were written elsewhere."""
        self._dropped |= other._dropped
        for name in self._dropped & self._counters.keys():
            del self._counters[name]
        tables = {name: counter.table() for name, counter in other._counters.items()}
        self.add({name: (whole(table["value"]), whole(table["count"])) for name, table in tables.items()})

    def table(self, name: str) -> pa.Table | None:
        """Returns the distinct values of a column and their counts, unordered; None if they are not known."""
        return self._counters[name].table() if name in self._counters else None


def _size(counter: Counter) -> int:
    return counter.nbytes + _PART_BYTES * counter.parts


def whole(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """Returns a column as one array, without a copy if it is one."""
    if isinstance(column, pa.Array):
        return column
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
