"""Split rules as ibis expressions: the index in SPLITS of each row."""

import shutil
from pathlib import Path
from typing import Any

import ibis
import ibis.expr.types as ir
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fieldwise.core.errors import DataError
from fieldwise.data.engines.engine import Preparation
from fieldwise.data.engines.session import ROW, Session
from fieldwise.data.engines.split_files import NumberSplit, key_of, split_by_number, train_or_valid
from fieldwise.data.engines.staging import read_batches
from fieldwise.data.engines.times import time_reader
from fieldwise.data.engines.values import columns_of
from fieldwise.data.source import Files
from fieldwise.data.split import ColumnSplit, RandomSplit, TimeSplit
from fieldwise.data.times import MAX_UNPARSED


def split_index(table: ir.Table, files: Files, part: int, plan: Preparation, session: Session) -> tuple[Any, int]:
    """Returns an expression for the index in SPLITS of each row, and the number of rows without a time, all in train.

    The index is -1 for a column value of no split. `part` counts the parts of a split by files.
    """
    split, by_number = plan.split, split_by_number(part, plan)
    if by_number is not None:
        return _numbered(table, by_number), 0
    if isinstance(split, RandomSplit):
        key = columns_of(table, files.columns, key_of(split, plan), "split.key")
        return _hashed(key, NumberSplit(split, (0, 1, 2))), 0
    assert isinstance(split, TimeSplit | ColumnSplit)
    (column,) = columns_of(table, files.columns, (split.column,), "split.column")
    if isinstance(split, ColumnSplit):
        text = column.cast("string")
        train = 0 if split.valid_share is None else _numbered(table, train_or_valid(split))
        return ibis.cases((text == split.train, train), (text == split.valid, 1), (text == split.test, 2), else_=-1), 0
    folder = plan.work / "times"
    session.write(table.select(value=column).group_by("value").agg(n=lambda t: t.count()), folder, ordered=False)
    read = time_reader(column, split, folder)
    counted = session.scan(folder, ("value", "n"))
    times = counted.select(time=read(counted.value), n=counted.n)
    first, second, untimed = _boundaries(times, split, session, plan.work / "sorted-times")
    shutil.rmtree(folder)
    time = read(column)
    return ibis.cases((time.isnull(), 0), (time < first, 0), (time < second, 1), else_=2), untimed


def _numbered(table: ir.Table, split: NumberSplit) -> Any:
    return ibis.literal(split.indices[0]) if len({*split.indices}) == 1 else _hashed([table[ROW]], split)


def _hashed(key: list[Any], split: NumberSplit) -> Any:
    """Computes the same md5 as `RandomSplit.assign`."""
    text: Any = ibis.literal(f"{split.drawn.seed}")
    for part in key:
        text = text + "|" + part.cast("string").fill_null("")
    prefix, (second, third) = text.hexdigest("md5").substr(0, 8), split.drawn.edges()
    return ibis.cases((prefix < second, split.indices[0]), (prefix < third, split.indices[1]), else_=split.indices[2])


def _boundaries(times: ir.Table, split: TimeSplit, session: Session, folder: Path) -> tuple[Any, Any, int]:
    """Returns the first times of valid and test, and the number of rows without a time.

    The first times are the earliest ones preceded by their fraction of the rows that have a time.
    """
    session.write(times.group_by("time").agg(count=times.n.sum()).order_by("time"), folder, ordered=True)
    total = sum(int(pc.sum(batch.column("count")).as_py()) for batch in read_batches(folder))
    untimed = sum(int(pc.sum(_without_time(batch).column("count")).as_py() or 0) for batch in read_batches(folder))
    _check_untimed(split, untimed, total)
    wanted, done = (total - untimed) * np.cumsum(split.shares[:2]), 0
    boundaries: list[Any] = []
    for batch in read_batches(folder):
        batch = batch.filter(batch.column("time").is_valid())
        counts = np.asarray(batch.column("count"))
        indices: NDArray[np.intp] = np.searchsorted(done + np.cumsum(counts) - counts, wanted[len(boundaries) :])
        boundaries += [batch.column("time")[int(index)].as_py() for index in indices if index < len(counts)]
        done += int(counts.sum())
    shutil.rmtree(folder)
    if len(boundaries) < 2:
        raise DataError(
            f"Split by time: column '{split.column}' has too few distinct times for the shares {split.shares}. "
            "Allowed: rows in every split. Set other shares, or use a finer time."
        )
    return boundaries[0], boundaries[1], untimed


def _without_time(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.filter(batch.column("time").is_null())


def _check_untimed(split: TimeSplit, untimed: int, total: int) -> None:
    """Refuses more than a small fraction of rows without a time."""
    if untimed > total * MAX_UNPARSED:
        raise DataError(
            f"Split by time: column '{split.column}' has no time in {untimed:,} of {total:,} rows. Allowed: at most "
            f"{MAX_UNPARSED:.0%}, which become training rows. Fill them in, or use another split."
        )
