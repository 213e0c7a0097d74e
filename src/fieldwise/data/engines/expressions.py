"""Reads, splits and counts rows with ibis expressions shared by all engines; each engine adds a small session."""

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import ibis
import ibis.expr.types as ir
import pyarrow as pa
import pyarrow.parquet as pq

from fieldwise.core.errors import DataError
from fieldwise.core.hints import either
from fieldwise.data.engines.columns import as_number, cleaned, columns_of, over_threshold
from fieldwise.data.engines.engine import (
    LABEL,
    SPLIT,
    Done,
    Item,
    Part,
    Preparation,
    Result,
    Totals,
    Whole,
    each_here,
    field,
)
from fieldwise.data.engines.local import LocalCounts
from fieldwise.data.engines.readable import readable
from fieldwise.data.engines.session import ROW, Session
from fieldwise.data.engines.splits import check_assigned, files_of_splits, split_by_number, split_index
from fieldwise.data.engines.staging import every_nth, read_batches, spool
from fieldwise.data.source import Files
from fieldwise.data.split import ColumnSplit


class EngineRows:
    """Raw rows with their split, written once as Parquet; all counts are expressions over these files."""

    def __init__(self, session: Session, plan: Preparation) -> None:
        self._session, self._work = session, plan.work
        self.folders: list[Path] = []
        """Folders of Parquet files with all rows, in order."""
        self._sources: list[ir.Table] = []
        self._every, self._passes = plan.every, 0
        files = plan.rows if isinstance(plan.rows, Files) else spool(plan.rows, plan.work)
        shown: dict[str, Path] = {}
        for index, part in enumerate(files_of_splits(files, plan.split)):
            plan.progress("read rows", index, None)
            part = readable(part, plan.work / f"readable-{index}")
            shown |= part.shown
            table = session.read(part)
            split, self.untimed = split_index(table, part, index, plan, session)
            self.folders.append(plan.work / f"rows-{index}")
            self._sources.append(rows := _select(table, part, plan, split))
            if plan.every > 1:  # filtered before anything is computed from the rows
                rows = _select(table.filter(table[ROW] % plan.every == 0), part, plan, split)
            elif self._write_text(part, index, plan):
                continue
            session.write(rows, self.folders[-1], ordered=True)
        self.skipped = self._check_bad_rows(files, shown)
        found = self._count(SPLIT)
        self.rows = [found.get(i, 0) for i in range(3)]
        few = sum(found.values()) <= session.max_local_rows
        limits = session.max_local_bytes, session.threads
        self._local = LocalCounts(self.folders, len(plan.rules), *limits) if few else None
        self.labels: dict[str | None, int] = self._count(LABEL)
        if isinstance(plan.split, ColumnSplit):
            check_assigned(sum(found.values()) - sum(self.rows), plan.split)

    def _write_text(self, files: Files, part: int, plan: Preparation) -> bool:
        """Writes the rows of simple text without the engine; False if it must."""
        if not files.is_text or split_by_number(ibis.table({ROW: "int64"}, name=ROW), part, plan) is None:
            return False
        names = [files.label, *(rule.column or "" for rule in plan.rules.values())]
        columns = [files.columns.index(name) for name in names]  # all known, since `_select` found them
        split = partial(split_by_number, part=part, plan=plan)
        return self._session.write_text(files, columns, split, self.folders[-1])

    def counts(self, index: int, min_count: int, ascending: bool) -> Iterator[pa.RecordBatch]:
        """Yields the counts of a field's raw values in training rows."""
        local = self._local.counts(index, min_count, ascending) if self._local else None
        if local is not None:
            yield from local
            return
        rows = self._scan(SPLIT, field(index))
        train = rows.filter(rows[SPLIT] == 0)
        found = train.group_by(value=train[field(index)]).agg(count=lambda t: t.count())
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

    def batches(self, parsed: Sequence[int] = ()) -> Iterator[pa.RecordBatch]:
        """Yields all rows in order."""
        for folder in self.folders:
            yield from read_batches(folder, [field(index) for index in parsed], as_stored=True)

    def parts(self, parsed: Sequence[int] = ()) -> Sequence[Part]:
        """Returns all rows as one part."""
        return [Whole(self, parsed)]

    def each(self, work: Callable[[Item, Done], Result], items: Sequence[Item], done: Done) -> Iterator[Result]:
        """Works in this process."""
        return each_here(work, items, done)

    def sample(self, every: int) -> pa.Table:
        """Returns every n-th row of each split's files."""
        return pa.concat_tables(every_nth(read_batches(folder), every) for folder in self.folders)

    def totals(self, indices: Sequence[int], min_count: int) -> dict[int, Totals]:
        """Counts values with one query per field; reads the source once more if only some of its rows are staged."""
        folders = self.folders
        if self._every > 1 and indices:
            self._passes += 1
            folders = [self._work / f"all-{self._passes}-{index}" for index in range(len(self._sources))]
            chosen = [SPLIT, *(field(index) for index in indices)]
            for rows, folder in zip(self._sources, folders, strict=True):
                self._session.write(rows.select(*chosen), folder, ordered=False)
        return {index: self._totals(folders, field(index), min_count) for index in indices}

    def _totals(self, folders: list[Path], name: str, min_count: int) -> Totals:
        tables = [self._session.scan(folder, (SPLIT, name)) for folder in folders]
        rows = tables[0] if len(tables) == 1 else ibis.union(*tables)
        rows = rows.filter(rows[name].notnull())
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

    def _count(self, column: str) -> dict[Any, int]:
        """Returns the count of each value, null first; at most 1,000, since a wrong label may be unique per row."""
        counted = self._scan(column).group_by(column).agg(count=lambda t: t.count())
        found = self._execute(counted.order_by(counted[column].notnull()).limit(1000), "counted")
        return dict(zip(found[column].to_pylist(), found["count"].to_pylist(), strict=True))

    def _scan(self, *columns: str) -> ir.Table:
        """Returns some columns of all rows; the cost of an expression grows with the columns of its table."""
        tables = [self._session.scan(folder, columns) for folder in self.folders]
        return tables[0] if len(tables) == 1 else ibis.union(*tables)

    def _execute(self, rows: ir.Table, name: str) -> pa.Table:
        folder = self._work / name
        self._session.write(rows, folder, ordered=False)
        table = pq.read_table(folder)
        shutil.rmtree(folder)
        return table

    def _check_bad_rows(self, files: Files, shown: Mapping[str, Path]) -> int:
        """Returns the number of bad rows; refuses them unless they may be skipped."""
        count, first = self._session.bad_rows()
        if count and files.bad_rows == "stop" and first:
            where = f"'{shown.get(first.path, first.path)}'" + ("" if first.line is None else f", line {first.line:,}")
            raise DataError(
                f"{where}: {first.reason}. The line: {first.text.strip()[:200]!r}. "
                f"Bad rows in total: {count:,}. Fix them, or skip them with "
                + either("--bad-rows skip.", "bad_rows='skip'.")
            )
        return count


def _select(table: ir.Table, files: Files, plan: Preparation, split: Any) -> ir.Table:
    """Returns the columns of staged rows: LABEL, SPLIT, ROW and the fields."""
    columns = columns_of(table, files.columns, [rule.column or "" for rule in plan.rules.values()], "data.fields")
    fields = {field(i): cleaned(column, files.cells) for i, column in enumerate(columns)}
    (label,) = columns_of(table, files.columns, (files.label,), "data.label")
    label = over_threshold(label, files) if files.threshold else label
    return table.select(**{LABEL: label.cast("string"), SPLIT: split.cast("int8"), ROW: table[ROW], **fields})
