"""Raw rows that an engine reads and splits; this process counts them, and the engine what takes too much memory."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from fieldwise.core.errors import DataError
from fieldwise.core.hints import either
from fieldwise.data.engines.columns import places_of
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
from fieldwise.data.engines.local import LocalCounts, counted
from fieldwise.data.engines.readable import readable
from fieldwise.data.engines.session import MAX_COUNTED, Session
from fieldwise.data.engines.split_files import check_assigned, files_of_splits, split_by_number
from fieldwise.data.engines.staging import every_nth, read_batches, spool
from fieldwise.data.engines.written_counts import WrittenCounts
from fieldwise.data.source import Files
from fieldwise.data.split import ColumnSplit

if TYPE_CHECKING:
    from fieldwise.data.engines.expressions import Expressions


class EngineRows:
    """Raw rows with their split, written once as Parquet and counted meanwhile."""

    def __init__(self, session: Session, plan: Preparation) -> None:
        self._session, self._plan = session, plan
        self.folders: list[Path] = []
        """Folders of Parquet files with all rows, in order."""
        self.untimed = 0
        files = plan.rows if isinstance(plan.rows, Files) else spool(plan.rows, plan.work)
        written: list[WrittenCounts | None] = []
        shown: dict[str, Path] = {}
        for index, part in enumerate(files_of_splits(files, plan.split)):
            plan.progress("read rows", index, None)
            part = readable(part, plan.work / f"readable-{index}")
            shown |= part.shown
            self.folders.append(plan.work / f"rows-{index}")
            written.append(self._write(part, index))
        self.skipped = self._check_bad_rows(files, shown)
        self._written = _joined(written, session.max_local_bytes)
        found = self._count(SPLIT)
        self.rows = [found.get(i, 0) for i in range(3)]
        self._is_local = sum(found.values()) <= session.max_local_rows
        self.labels: dict[str | None, int] = self._count(LABEL)
        if isinstance(plan.split, ColumnSplit):
            check_assigned(sum(found.values()) - sum(self.rows), plan.split)

    @cached_property
    def _expressions(self) -> "Expressions":
        """What the engine computes; importing ibis takes longer than many preparations."""
        from fieldwise.data.engines.expressions import Expressions

        return Expressions(self._session, self._plan, self.folders)

    def _write(self, files: Files, part: int) -> WrittenCounts | None:
        """Stages the rows of a part: without the engine if they are simple text."""
        names = [rule.column or "" for rule in self._plan.rules.values()]
        columns = places_of(files.columns, names, "data.fields")
        columns = [*places_of(files.columns, (files.label,), "data.label"), *columns]
        split = split_by_number(part, self._plan) if files.is_text and self._plan.every == 1 else None
        if split is not None:
            written = self._session.write_text(files, columns, split, self.folders[-1])
            if written is not None:
                return written
        written, self.untimed = self._expressions.stage(files, part)
        return written

    def counts(self, index: int, min_count: int, ascending: bool) -> Iterator[pa.RecordBatch]:
        """Yields the counts of a field's raw values in training rows."""
        found: Iterator[pa.RecordBatch] | None = None
        if self._is_local:
            table = self._written.table(field(index))
            known = None if table is None else counted(table, min_count, ascending)
            found = known or self._local.counts(index, min_count, ascending)
        yield from found or self._expressions.counts(index, min_count, ascending)

    @cached_property
    def _local(self) -> LocalCounts:
        """Counts the columns that were not counted while they were written."""
        names = [field(index) for index in range(len(self._plan.rules))]
        unknown = [name for name in names if self._written.table(name) is None]
        return LocalCounts(self.folders, unknown, self._session.max_local_bytes, self._session.threads)

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
        return self._expressions.totals(indices, min_count) if indices else {}

    def _count(self, column: str) -> dict[Any, int]:
        """Returns the count of each value, null first; at most 1,000, since a wrong label may be unique per row."""
        found = self._written.table(column)
        if found is None:
            return self._expressions.count(column)
        order = np.argsort(np.asarray(found["value"].is_valid()), kind="stable")[:MAX_COUNTED]
        found = found.take(pa.array(order))
        return dict(zip(found["value"].to_pylist(), found["count"].to_pylist(), strict=True))

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


def _joined(written: Sequence[WrittenCounts | None], max_bytes: int) -> WrittenCounts:
    """Returns the counts of all parts of the rows; of no column if some part was not counted."""
    known = [counts for counts in written if counts is not None]
    if len(written) == len(known) == 1:
        return known[0]
    whole = WrittenCounts(max_bytes)
    for counts in known if len(known) == len(written) else ():
        whole.join(counts)
    return whole
