"""Staged rows of Spark: read, encoded and sampled by executors, file by file."""

import socket
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from fieldwise.data.engines.engine import Done, Item, Part, Preparation, Result, field
from fieldwise.data.engines.engine_rows import EngineRows
from fieldwise.data.engines.executors import not_shared, run
from fieldwise.data.engines.staging import every_nth, parquet_files, read_file


class SparkRows(EngineRows):
    """Staged rows in as many parts as Spark wrote files; their names sort like the rows."""

    def __init__(self, session: Any, plan: Preparation) -> None:
        super().__init__(session, plan)
        self._spark, self._work = session.spark, plan.work

    def parts(self, parsed: Sequence[int] = ()) -> Sequence[Part]:
        """Returns one part per file."""
        names = tuple(field(index) for index in parsed)
        return [_File(path, names) for folder in self.folders for path in parquet_files(folder)]

    def each(self, work: Callable[[Item, Done], Result], items: Sequence[Item], done: Done) -> Iterator[Result]:
        """Works in the executors, one task per item."""
        return iter(run(self._spark, work, items, self._work))

    def sample(self, every: int) -> pa.Table:
        """Returns every n-th row of each split's files; executors read them."""
        items: list[tuple[Path, int]] = []
        for folder in self.folders:
            before = 0
            for path in parquet_files(folder):
                items.append((path, before))
                before += pq.read_metadata(path).num_rows
        return pa.concat_tables(run(self._spark, _Sampling(every), items, self._work))


@dataclass(frozen=True, slots=True)
class _File:
    path: Path
    parsed: tuple[str, ...]

    def batches(self) -> Iterator[pa.RecordBatch]:
        return read_file(self.path, self.parsed, as_stored=True)


@dataclass(frozen=True, slots=True)
class _Sampling:
    every: int

    def __call__(self, item: tuple[Path, int], done: Done) -> pa.Table:
        path, before = item
        return every_nth(read_file(path), self.every, before)


def check_folder(spark: Any, folder: Path) -> None:
    """Refuses a folder that the executors do not share with this process, before any row is read."""
    token = folder / f"seen-{uuid4().hex}"
    token.touch()
    count = max(2, spark.sparkContext.defaultParallelism)
    found = run(spark, _Probe(token), range(count), folder)
    problems = [f"{host}: {problem}" for host, name, problem in found if problem or not (folder / name).exists()]
    if problems:
        raise not_shared(folder, problems[0])


@dataclass(frozen=True, slots=True)
class _Probe:
    """Looks for a file of the driver, and writes one beside it."""

    token: Path

    def __call__(self, index: int, done: Done) -> tuple[str, str, str]:
        own = self.token.with_name(f"{self.token.name}-{uuid4().hex}")
        try:
            own.touch()
            problem = "" if self.token.exists() else "it has another folder of this name"
        except OSError as error:
            problem = error.strerror or str(error)
        return socket.gethostname(), own.name, problem
