"""What an engine computes: ibis expressions shared by all engines; each engine adds a small session."""

import math
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import astuple
from pathlib import Path
from typing import Any

import ibis
import ibis.expr.types as ir
import pyarrow as pa
import pyarrow.parquet as pq

from fieldwise.data.engines.engine import LABEL, SPLIT, Preparation, Totals, field
from fieldwise.data.engines.session import MAX_COUNTED, ROW, Session
from fieldwise.data.engines.splits import split_index
from fieldwise.data.engines.staging import column_bytes, read_batches
from fieldwise.data.engines.values import as_number, cleaned, columns_of, over_threshold
from fieldwise.data.engines.written_counts import WrittenCounts
from fieldwise.data.source import Files


class Expressions:
    """Stages the rows of a plan in folders; counts are expressions over their Parquet files."""

    def __init__(self, session: Session, plan: Preparation, folders: Sequence[Path]) -> None:
        self._session, self._plan, self._folders, self._work = session, plan, folders, plan.work
        self._sources: list[ir.Table] = []
        self._passes = 0

    def stage(self, files: Files, part: int) -> tuple[WrittenCounts | None, int]:
        """Writes the rows of a part into its folder; also returns the number of rows without a time."""
        table, every = self._session.read(files), self._plan.every
        split, untimed = split_index(table, files, part, self._plan, self._session)
        self._sources.append(rows := _select(table, files, self._plan, split))
        if every > 1:  # filtered before anything is computed from the rows
            rows = _select(table.filter(table[ROW] % every == 0), files, self._plan, split)
        return self._session.write(rows, self._folders[part], ordered=True), untimed

    def counts(self, index: int, min_count: int, ascending: bool) -> Iterator[pa.RecordBatch]:
        """Yields the counts of a field's raw values in training rows."""
        rows = self._scan(self._folders, SPLIT, field(index))
        train = rows.filter(rows[SPLIT] == 0)
        for part in [train] if ascending else self._divided(train, self._folders, field(index)):
            yield from self._counts(part, field(index), min_count, ascending)

    def _counts(self, rows: ir.Table, name: str, min_count: int, ascending: bool) -> Iterator[pa.RecordBatch]:
        found = rows.group_by(value=rows[name]).agg(count=lambda t: t.count())
        if min_count > 1 and not found.value.type().is_array():
            found = found.filter(found["count"] >= min_count)
        if ascending:
            found = found.order_by(as_number(found.value))
        folder = self._work / "counts"
        self._session.write(found, folder, ordered=ascending)
        try:
            yield from read_batches(folder)
        finally:  # also if the caller needs only the first batch
            shutil.rmtree(folder)

    def _divided(self, rows: ir.Table, folders: Sequence[Path], name: str) -> list[ir.Table]:
        """Returns rows by the hash of a column, so that a query takes little memory for many different values."""
        limit = self._session.max_query_bytes
        parts = 1 if limit is None else math.ceil(sum(column_bytes(folder, name) for folder in folders) / limit)
        place = (rows[name].hash() % parts + parts) % parts if parts > 1 else None  # a hash may be negative
        return [rows] if place is None else [rows.filter(place == part) for part in range(parts)]

    def totals(self, indices: Sequence[int], min_count: int) -> dict[int, Totals]:
        """Counts values with one query per field; reads the source once more if only some of its rows are staged."""
        folders = self._folders
        if self._plan.every > 1:
            self._passes += 1
            folders = [self._work / f"all-{self._passes}-{index}" for index in range(len(self._sources))]
            chosen = [SPLIT, *(field(index) for index in indices)]
            for rows, folder in zip(self._sources, folders, strict=True):
                self._session.write(rows.select(*chosen), folder, ordered=False)
        return {index: self._totals(folders, field(index), min_count) for index in indices}

    def _totals(self, folders: Sequence[Path], name: str, min_count: int) -> Totals:
        rows = self._scan(folders, SPLIT, name)
        rows = rows.filter(rows[name].notnull())
        found = [self._totals_of(part, name, min_count) for part in self._divided(rows, folders, name)]
        return Totals(*(sum(counts) for counts in zip(*map(astuple, found), strict=True)))

    def _totals_of(self, rows: ir.Table, name: str, min_count: int) -> Totals:
        values = rows.group_by(name).agg(
            train=(rows[SPLIT] == 0).cast("int64").sum(), later=(rows[SPLIT] == 1).cast("int64").sum()
        )
        counted = values.agg(
            known=values.train.sum(),
            distinct=(values.train > 0).cast("int64").sum(),
            later=values.later.sum(),
            unknown=ibis.ifelse(values.train < min_count, values.later, 0).sum(),
        )
        (found,) = self._execute(counted, "totals").to_pylist()
        return Totals(**{key: int(value or 0) for key, value in found.items()})

    def count(self, column: str) -> dict[Any, int]:
        """Returns the count of each value, null first; at most 1,000, since a wrong label may be unique per row."""
        counted = self._scan(self._folders, column).group_by(column).agg(count=lambda t: t.count())
        found = self._execute(counted.order_by(counted[column].notnull()).limit(MAX_COUNTED), "counted")
        return dict(zip(found[column].to_pylist(), found["count"].to_pylist(), strict=True))

    def _scan(self, folders: Sequence[Path], *columns: str) -> ir.Table:
        """Returns some columns of all rows; the cost of an expression grows with the columns of its table."""
        tables = [self._session.scan(folder, columns) for folder in folders]
        return tables[0] if len(tables) == 1 else ibis.union(*tables)

    def _execute(self, rows: ir.Table, name: str) -> pa.Table:
        folder = self._work / name
        self._session.write(rows, folder, ordered=False)
        table = pq.read_table(folder)
        shutil.rmtree(folder)
        return table


def _select(table: ir.Table, files: Files, plan: Preparation, split: Any) -> ir.Table:
    """Returns the columns of staged rows: LABEL, SPLIT, ROW and the fields."""
    columns = columns_of(table, files.columns, [rule.column or "" for rule in plan.rules.values()], "data.fields")
    fields = {field(i): cleaned(column, files.cells) for i, column in enumerate(columns)}
    (label,) = columns_of(table, files.columns, (files.label,), "data.label")
    label = over_threshold(label, files) if files.threshold else label
    return table.select(**{LABEL: label.cast("string"), SPLIT: split.cast("int8"), ROW: table[ROW], **fields})
