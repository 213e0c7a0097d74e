"""Split rules as ibis expressions: the index in SPLITS of each row, or the files of each split."""

import shutil
from pathlib import Path
from typing import Any, Final

import ibis
import ibis.expr.types as ir
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fieldwise.core.errors import DataError
from fieldwise.data.engines.columns import columns_of
from fieldwise.data.engines.engine import Preparation
from fieldwise.data.engines.session import ROW, Session
from fieldwise.data.engines.staging import read_batches
from fieldwise.data.engines.times import time_reader
from fieldwise.data.files import Format, find, format_of
from fieldwise.data.source import Files, SourceRows
from fieldwise.data.split import SPLITS, ColumnSplit, FileSplit, RandomSplit, SplitRule, TimeSplit
from fieldwise.data.text_layout import check_same_layout
from fieldwise.data.times import MAX_UNPARSED

_WORDS: Final[dict[Format, str]] = {"text": "text", "json": "JSON Lines", "parquet": "Parquet"}


def files_of_splits(files: Files, split: SplitRule) -> list[Files]:
    """Returns the files of train, valid and test, or of train and test, for a split by files; else all files."""
    if not isinstance(split, FileSplit):
        return [files]
    others = [split.test] if split.valid is None else [split.valid, split.test]
    parts = [files, *(files.with_paths(find(raw)) for raw in others)]
    _check_disjoint(dict(zip(_of_parts(split), parts, strict=True)))
    formats = [format_of(part.paths[0]) for part in parts]
    for part, found in zip(parts[1:], formats[1:], strict=True):
        if found != formats[0]:
            raise DataError(
                f"Split by files: '{part.paths[0]}' is {_WORDS[found]}, the training rows are {_WORDS[formats[0]]}. "
                "Allowed: the same format in all splits. Convert one of them."
            )
        if files.is_text:
            check_same_layout(files.paths[0], part.paths, files.layout)
    return parts


def _of_parts(split: FileSplit) -> list[str]:
    return [name for name in SPLITS if name != "valid" or split.valid is not None]


def split_index(table: ir.Table, files: Files, part: int, plan: Preparation, session: Session) -> tuple[Any, int]:
    """Returns an expression for the index in SPLITS of each row, and the number of rows without a time, all in train.

    The index is -1 for a column value of no split. `part` counts the parts of a split by files.
    """
    split, by_number = plan.split, split_by_number(table, part, plan)
    if by_number is not None:
        return by_number, 0
    if isinstance(split, RandomSplit):
        return _hashed(columns_of(table, files.columns, _key(split, plan), "split.key"), split), 0
    assert isinstance(split, TimeSplit | ColumnSplit)
    (column,) = columns_of(table, files.columns, (split.column,), "split.column")
    if isinstance(split, ColumnSplit):
        text = column.cast("string")
        train = 0 if split.valid_share is None else _train_or_valid(table, split)
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


def split_by_number(table: ir.Table, part: int, plan: Preparation) -> Any | None:
    """Returns the expression of a split that depends on no column but ROW; None for other splits."""
    split = plan.split
    if isinstance(split, FileSplit):
        index = SPLITS.index(_of_parts(split)[part])
        return _train_or_valid(table, split) if index == 0 and split.valid is None else ibis.literal(index)
    if isinstance(split, RandomSplit) and not _key(split, plan):
        return _hashed([table[ROW]], split)
    return None


def _key(split: RandomSplit, plan: Preparation) -> tuple[str, ...]:
    return split.key or (plan.rows.key if isinstance(plan.rows, SourceRows) else ())


def check_assigned(unassigned: int, split: ColumnSplit) -> None:
    """Refuses rows whose column value belongs to no split."""
    if unassigned:
        raise DataError(
            f"Split by column '{split.column}': {unassigned:,} rows have another value. Allowed: '{split.train}', "
            f"'{split.valid}', '{split.test}'. Set the values with split.{', split.'.join(SPLITS)}."
        )


def _train_or_valid(table: ir.Table, split: FileSplit | ColumnSplit) -> Any:
    """Takes some of the rows for valid, at random."""
    share = split.valid_share or 0.0
    drawn = _hashed([table[ROW]], RandomSplit(seed=split.seed, shares=(1 - share, share / 2, share / 2)))
    return ibis.ifelse(drawn == 0, 0, 1)


def _hashed(key: list[Any], split: RandomSplit) -> Any:
    """Computes the same md5 as `RandomSplit.assign`."""
    text: Any = ibis.literal(f"{split.seed}")
    for part in key:
        text = text + "|" + part.cast("string").fill_null("")
    prefix, (valid, test) = text.hexdigest("md5").substr(0, 8), split.edges()
    return ibis.cases((prefix < valid, 0), (prefix < test, 1), else_=2)


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


def _check_disjoint(parts: dict[str, Files]) -> None:
    """Refuses a file that is in two splits."""
    seen: dict[Path, str] = {}
    for name, part in parts.items():
        for path in part.paths:
            other = seen.setdefault(path.resolve(), name)
            if other != name:
                raise DataError(
                    f"Split by files: '{path}' is in {other} and in {name}. Allowed: each file in one of "
                    f"{', '.join(SPLITS)}. Select other files, such as a glob of only the training files in data.raw."
                )
