"""Reading, splitting and counting, written once as ibis expressions; each engine has a small session."""

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import ibis
import ibis.expr.types as ir
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from fieldwise.core.errors import DataError
from fieldwise.core.registry import unknown
from fieldwise.data.engines.engine import LABEL, PLACE, Preparation, field
from fieldwise.data.engines.local import LocalCounts
from fieldwise.data.files import check_whole, find, is_parquet, parquet_sample, same_headers, text_sample
from fieldwise.data.infer import number_kind
from fieldwise.data.source import Files, SourceRows
from fieldwise.data.split import SPLITS, ColumnSplit, FileSplit, RandomSplit, SplitRule, TimeSplit

ROW: Final = "__row"
"""The number of a row, counted from 0 over all files in order."""
BATCH: Final = 131_072
"""Rows of a batch, and of a row group."""
FEW: Final = BATCH
"""Rows that are counted in this process: a query for each field would take longer."""
BATCH_BYTES: Final = 64 << 20
"""Of a batch, whose rows may be wide; encoding takes some times as much."""


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row of text that has another number of columns, or is not UTF-8."""

    path: str
    line: int | None
    text: str
    why: str


class Session(Protocol):
    """What differs between engines."""

    def read(self, files: Files) -> ir.Table:
        """Raw columns as they are, text where files are text, and ROW."""

    def write(self, rows: ir.Table, folder: Path, ordered: bool) -> None:
        """Writes Parquet files whose names sort like the rows; `ordered` rows keep the order they were read in."""

    def written(self, folder: Path, columns: Sequence[str]) -> ir.Table:
        """Reads back some columns of what `write` wrote, at a cost that other columns hardly change."""

    def bad_rows(self) -> tuple[int, BadRow | None]:
        """How many rows were left out while reading, and the first of them."""


class EngineRows:
    """Raw rows with their split as Parquet, written once; every question is an expression over them."""

    def __init__(self, session: Session, plan: Preparation) -> None:
        self._session, self._work = session, plan.work
        # a number in text takes long to read, so each different one of a batch is read once
        self._dear = [field(i) for i, rule in enumerate(plan.rules.values()) if rule.kind != "category"]
        self._folders: list[Path] = []
        files = plan.rows if isinstance(plan.rows, Files) else _spool(plan.rows, plan.work)
        for place, part in enumerate(_parts(files, plan.split)):
            plan.progress("read rows", place, None)
            if part.is_text:
                check_whole(part.paths)
            else:
                _check_parquet(part)
            table = session.read(part)
            places = place if isinstance(plan.split, FileSplit) else self._place(table, part, plan)
            self._folders.append(plan.work / f"rows-{place}")
            session.write(_select(table, part, plan, places), self._folders[-1], ordered=True)
        self.skipped = self._check_bad_rows(files)
        places = self._count(PLACE)
        self.rows = [places.get(i, 0) for i in range(3)]
        few = sum(places.values()) <= FEW
        self._local = LocalCounts(self._folders, len(plan.rules)) if few else None
        self.labels: dict[str | None, int] = self._count(LABEL)
        if isinstance(plan.split, ColumnSplit):
            _check_places(sum(places.values()) - sum(self.rows), plan.split)

    def counts(self, index: int, min_count: int, rising: bool) -> Iterator[pa.RecordBatch]:
        """How often each raw value of a field is there in training rows."""
        local = self._local.counts(index, min_count, rising) if self._local else None
        if local is not None:
            yield from local
            return
        rows = self._written(PLACE, field(index))
        train = rows.filter(rows[PLACE] == 0)
        found = train.group_by(value=train[field(index)]).agg(count=lambda t: t.count())
        if min_count > 1 and not found.value.type().is_array():
            found = found.filter(found["count"] >= min_count)
        if rising:
            found = found.order_by(_number(found.value))
        folder = self._work / "counts"
        self._session.write(found, folder, ordered=rising)
        yield from _batches(folder)
        shutil.rmtree(folder)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """All rows in order."""
        for folder in self._folders:
            yield from _batches(folder, self._dear)

    def _count(self, column: str) -> dict[Any, int]:
        """How often each value is there; null first, 1,000 at most, since a wrong label may hold as many as rows."""
        counted = self._written(column).group_by(column).agg(count=lambda t: t.count())
        found = self._ask(counted.order_by(counted[column].notnull()).limit(1000), "counted")
        return dict(zip(found[column].to_pylist(), found["count"].to_pylist(), strict=True))

    def _written(self, *columns: str) -> ir.Table:
        """Some columns of all rows: what an expression costs grows with the columns of its table."""
        tables = [self._session.written(folder, columns) for folder in self._folders]
        return tables[0] if len(tables) == 1 else ibis.union(*tables)

    def _ask(self, rows: ir.Table, name: str) -> pa.Table:
        folder = self._work / name
        self._session.write(rows, folder, ordered=False)
        table = pq.read_table(folder)
        shutil.rmtree(folder)
        return table

    def _place(self, table: ir.Table, files: Files, plan: Preparation) -> Any:
        split = plan.split
        if isinstance(split, RandomSplit):
            own = plan.rows.key if isinstance(plan.rows, SourceRows) else ()
            key = _columns(table, split.key or own, "split.key") or [table[ROW]]
            text = ibis.literal(f"{split.seed}")
            for part in key:
                text = text + "|" + part.cast("string").fill_null("")
            head, (valid, test) = text.hexdigest("md5").substr(0, 8), split.edges()
            return ibis.cases((head < valid, 0), (head < test, 1), else_=2)
        assert isinstance(split, TimeSplit | ColumnSplit)
        (column,) = _columns(table, (split.column,), "split.column")
        if isinstance(split, ColumnSplit):
            text = column.cast("string")
            return ibis.cases((text == split.train, 0), (text == split.valid, 1), (text == split.test, 2), else_=-1)
        time = _number(column) if files.is_text and _looks_like_numbers(files, split.column) else column
        first, second = self._cuts(table.select(time=time), split)
        return ibis.cases((time < first, 0), (time < second, 1), else_=2)

    def _cuts(self, times: ir.Table, split: TimeSplit) -> list[Any]:
        """The times at which valid and test begin: the first ones with so many rows before them."""
        folder = self._work / "times"
        found = times.group_by("time").agg(count=lambda t: t.count()).order_by("time")
        self._session.write(found, folder, ordered=True)
        if any(batch.column("time").null_count for batch in _batches(folder)):
            raise DataError(f"Split by time: column '{split.column}' has empty values. Fill them, or split otherwise.")
        total = sum(pc.sum(batch.column("count")).as_py() for batch in _batches(folder))
        wanted, done = total * np.cumsum(split.shares[:2]), 0
        cuts: list[Any] = []
        for batch in _batches(folder):
            counts = np.asarray(batch.column("count"))
            places: NDArray[np.intp] = np.searchsorted(done + np.cumsum(counts) - counts, wanted[len(cuts) :])
            cuts += [batch.column("time")[int(place)].as_py() for place in places if place < len(counts)]
            done += int(counts.sum())
        shutil.rmtree(folder)
        if len(cuts) < 2:
            raise DataError(
                f"Split by time: column '{split.column}' has too few different times for the shares {split.shares}. "
                "Give other shares or a finer time."
            )
        return cuts

    def _check_bad_rows(self, files: Files) -> int:
        count, first = self._session.bad_rows()
        if count and files.bad_rows == "stop" and first:
            where = f"'{first.path}'" + ("" if first.line is None else f", line {first.line:,}")
            raise DataError(
                f"{where}: {first.why}. The line: {first.text.strip()[:200]!r}. "
                f"Bad rows in all: {count:,}. Mend them, or skip them with --bad-rows skip."
            )
        return count


def _select(table: ir.Table, files: Files, plan: Preparation, place: Any) -> ir.Table:
    columns = _columns(table, [rule.column or "" for rule in plan.rules.values()], "data.fields")
    fields = {field(i): column for i, column in enumerate(columns)}
    (label,) = _columns(table, (files.label,), "data.label")
    place = ibis.literal(place) if isinstance(place, int) else place
    return table.select(**{LABEL: label.cast("string"), PLACE: place.cast("int8"), ROW: table[ROW], **fields})


def _columns(table: ir.Table, names: Any, where: str) -> list[Any]:
    known = set(table.columns)
    for name in names:
        if name not in known:
            raise DataError(unknown(where, name, known - {ROW}))
    return [table[name] for name in names]


def _parts(files: Files, split: SplitRule) -> list[Files]:
    if not isinstance(split, FileSplit):
        return [files]
    parts = [files, files.at(find(split.valid)), files.at(find(split.test))]
    _in_one_part(parts)
    for part in parts[1:]:
        if is_parquet(part.paths) == files.is_text:
            kinds = ("Parquet", "text") if files.is_text else ("text", "Parquet")
            raise DataError(
                f"Split by files: '{part.paths[0]}' is {kinds[0]}, the training rows are {kinds[1]}. "
                "Allowed: one kind in all splits. Convert one of them."
            )
        if files.delimiter is not None and files.header:
            same_headers((files.paths[0], *part.paths), files.delimiter)
    return parts


def _in_one_part(parts: list[Files]) -> None:
    """Refuses a file that would train and judge."""
    seen: dict[Path, str] = {}
    for name, part in zip(SPLITS, parts, strict=True):
        for path in part.paths:
            other = seen.setdefault(path.resolve(), name)
            if other != name:
                raise DataError(
                    f"Split by files: '{path}' is in {other} and in {name}. Allowed: each file in one of "
                    f"{', '.join(SPLITS)}. Name others, such as a glob of the training files alone in data.raw."
                )


def _spool(rows: SourceRows, work: Path) -> Files:
    """Rows of this process as a Parquet file, where the engine can read them."""
    path = work / "spooled.parquet"
    writer: pq.ParquetWriter | None = None
    for batch in rows.batches():
        writer = writer or pq.ParquetWriter(path, batch.schema)
        writer.write_batch(batch)
    if writer is None:
        raise DataError("The source holds no rows. Allowed: 1 or more. Check the raw file.")
    writer.close()
    columns = tuple(pq.read_schema(path).names)
    return Files((path,), columns, rows.fields, rows.label, rows.rules, delimiter=None, positive=rows.positive)


def _number(column: Any) -> Any:
    """What orders a column as `rules.numbers_of` does."""
    ordered = column.type().is_numeric() or column.type().is_temporal()
    return column if ordered else column.cast("string").strip().try_cast("float64")


def _looks_like_numbers(files: Files, column: str) -> bool:
    if files.header:
        return number_kind(text_sample(files.paths[0], files.delimiter or ",")[column]) is not None
    return False


def _batches(folder: Path, repeated: Sequence[str] = ()) -> Iterator[pa.RecordBatch]:
    """The rows of Parquet files in order; columns with `repeated` text come as dictionary arrays."""
    for path in sorted(folder.glob("*.parquet")):
        flat = {column.name for column in pq.read_schema(path) if not pa.types.is_nested(column.type)}
        repeated = [name for name in repeated if name in flat]
        # pre_buffer would keep everything read so far until the last row; a buffer size reads columns piece by piece
        with pq.ParquetFile(path, read_dictionary=repeated, pre_buffer=False, buffer_size=1 << 20) as file:
            first = next(file.iter_batches(2048), None)
            if first is not None:
                width = max(1, first.nbytes // len(first))
                yield from file.iter_batches(max(1, min(BATCH, BATCH_BYTES // width)))


def _check_places(strange: int, split: ColumnSplit) -> None:
    if strange:
        raise DataError(
            f"Split by column '{split.column}': {strange:,} rows hold none of '{split.train}', '{split.valid}', "
            f"'{split.test}'. Name the values with split.{', split.'.join(SPLITS)}."
        )


def _check_parquet(files: Files) -> None:
    """Refuses Parquet files whose columns differ from the first one's."""
    for path in files.paths[1:]:
        names = tuple(parquet_sample(path).column_names)
        if set(names) != set(files.columns):
            raise DataError(
                f"'{path}' has other columns than '{files.paths[0]}': {', '.join(names)}. Name files of one kind."
            )
