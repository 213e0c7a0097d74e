"""Rows that a source makes in this process, counted in this process."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fieldwise.core.errors import DataError
from fieldwise.data.engines.engine import LABEL, PLACE, Engine, Preparation, field
from fieldwise.data.engines.local import counted
from fieldwise.data.source import SourceRows
from fieldwise.data.split import RandomSplit
from fieldwise.data.vocabulary import Counter


class Arrow(Engine):
    """This process alone, for rows that a source makes itself and a random split."""

    def stage(self, plan: Preparation) -> "ArrowRows":
        """Reads all rows once."""
        if not isinstance(plan.rows, SourceRows) or not isinstance(plan.split, RandomSplit):
            raise DataError(
                "Engine 'arrow' reads no files and knows the random split alone. Use engine 'duckdb' for anything else."
            )
        return ArrowRows(plan, plan.rows, plan.split)


class ArrowRows:
    """Raw rows that are drawn again for each pass; splits and counts are kept."""

    def __init__(self, plan: Preparation, rows: SourceRows, split: RandomSplit) -> None:
        self._source, self._columns = rows, [rule.column for rule in plan.rules.values()]
        self._places: list[NDArray[np.uint8]] = []
        self._counters = [Counter() for _ in self._columns]
        self.skipped = 0
        labels, done = Counter(), 0
        for batch in rows.batches():
            labels.add(batch.column(rows.label).cast(pa.string()))
            self._places.append(split.assign(batch, split.key or rows.key))
            train = batch.filter(pa.array(self._places[-1] == 0))
            for counter, name in zip(self._counters, self._columns, strict=True):
                counter.add(train.column(name))
            done += batch.num_rows
            plan.progress("count values", done, rows.count)
        table = labels.table() if done else pa.table({"value": [], "count": []})
        self.labels = dict(zip(table["value"].to_pylist(), table["count"].to_pylist(), strict=True))
        self.rows = [sum(int((place == i).sum()) for place in self._places) for i in range(3)]

    def counts(self, index: int, min_count: int, rising: bool) -> Iterator[pa.RecordBatch]:
        """How often each raw value of a field is there in training rows."""
        return counted(self._counters[index].table(), min_count, rising)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """All rows in order, with their places."""
        for batch, place in zip(self._source.batches(), self._places, strict=True):
            fields = {field(i): batch.column(name) for i, name in enumerate(self._columns)}
            yield pa.record_batch({LABEL: batch.column(self._source.label).cast(pa.string()), PLACE: place, **fields})
