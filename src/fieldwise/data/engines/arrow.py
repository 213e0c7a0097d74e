"""Engine for rows that a source generates: counts them in this process."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fieldwise.core.errors import DataError
from fieldwise.data.engines.engine import (
    LABEL,
    SPLIT,
    Done,
    Engine,
    Item,
    Part,
    Preparation,
    Result,
    Totals,
    Whole,
    each_here,
    field,
)
from fieldwise.data.engines.local import counted
from fieldwise.data.engines.staging import every_nth
from fieldwise.data.rules import numbers_of
from fieldwise.data.source import SourceRows
from fieldwise.data.split import RandomSplit
from fieldwise.data.vocabulary import Counter


class Arrow(Engine):
    """This process; only for generated rows and a random split."""

    def stage(self, plan: Preparation) -> "ArrowRows":
        """Reads all rows once."""
        if not isinstance(plan.rows, SourceRows) or not isinstance(plan.split, RandomSplit):
            raise DataError(
                "Engine 'arrow' cannot read files or split this way. Allowed: generated rows with the split 'random'. "
                "Use engine 'duckdb' instead."
            )
        return ArrowRows(plan, plan.rows, plan.split)


class ArrowRows:
    """Raw rows that are generated again for each pass; splits and counts are stored."""

    def __init__(self, plan: Preparation, rows: SourceRows, split: RandomSplit) -> None:
        self._source, self._columns = rows, [rule.column for rule in plan.rules.values()]
        self._splits: list[NDArray[np.uint8]] = []
        self._counters = [Counter() for _ in self._columns]
        self.skipped = self.untimed = 0
        labels, done = Counter(), 0
        for batch in rows.batches():
            labels.add(self._labels(batch))
            self._splits.append(split.assign(batch, split.key or rows.key))
            train = batch.filter(pa.array(self._splits[-1] == 0))
            for counter, name in zip(self._counters, self._columns, strict=True):
                counter.add(rows.cells.clean(train.column(name)))
            done += batch.num_rows
            plan.progress("count values", done, rows.count)
        table = labels.table() if done else pa.table({"value": [], "count": []})
        self.labels = dict(zip(table["value"].to_pylist(), table["count"].to_pylist(), strict=True))
        self.rows = [sum(int((indices == i).sum()) for indices in self._splits) for i in range(3)]

    def counts(self, index: int, min_count: int, ascending: bool) -> Iterator[pa.RecordBatch]:
        """Returns the counts of a field's raw values in training rows."""
        return counted(self._counters[index].table(), min_count, ascending)

    def parts(self, parsed: Sequence[int] = ()) -> Sequence[Part]:
        """Returns all rows as one part."""
        return [Whole(self, parsed)]

    def each(self, work: Callable[[Item, Done], Result], items: Sequence[Item], done: Done) -> Iterator[Result]:
        """Works in this process."""
        return each_here(work, items, done)

    def sample(self, every: int) -> pa.Table:
        """Returns every n-th row."""
        return every_nth(self.batches(), every)

    def totals(self, indices: Sequence[int], min_count: int) -> dict[int, Totals]:
        """Counts values of all rows."""
        return {index: self._totals(index, min_count) for index in indices}

    def _totals(self, index: int, min_count: int) -> Totals:
        train = self._counters[index].table()
        train = train.filter(pc.is_valid(train["value"]))
        frequent = train["value"].filter(pc.greater_equal(train["count"], min_count))
        later = unknown = 0
        for batch in self.batches():
            values = batch.column(field(index)).filter(pc.equal(batch.column(SPLIT), 1)).drop_null()
            later += len(values)
            unknown += pc.sum(pc.invert(pc.is_in(values, value_set=frequent.combine_chunks()))).as_py() or 0
        return Totals(int(pc.sum(train["count"]).as_py() or 0), len(train), later, int(unknown))

    def batches(self, parsed: Sequence[int] = ()) -> Iterator[pa.RecordBatch]:
        """Yields all rows in order, with their splits."""
        for batch, split in zip(self._source.batches(), self._splits, strict=True):
            clean = self._source.cells.clean
            fields = {field(i): clean(batch.column(name)) for i, name in enumerate(self._columns)}
            yield pa.record_batch({LABEL: self._labels(batch), SPLIT: split, **fields})

    def _labels(self, batch: pa.RecordBatch) -> pa.Array:
        column, threshold = batch.column(self._source.label), self._source.threshold
        if threshold is None:
            return column.cast(pa.string())
        numbers, known = numbers_of(self._source.cells.clean(column))
        return pa.array(np.where(threshold.holds(numbers), "1", "0"), mask=~known)
