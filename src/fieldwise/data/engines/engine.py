"""Base class of the engines, and what they return: raw rows with their split, and value counts."""

import os
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol, TypeVar

import pyarrow as pa
from pydantic import Field

from fieldwise.core.settings import Settings
from fieldwise.data.rules import Rule
from fieldwise.data.source import Files, SourceRows
from fieldwise.data.split import RandomSplit, SplitRule

Progress = Callable[[str, int, int | None], None]
"""Called with a stage's name, the rows or fields done, and their total (None if unknown)."""
Done = Callable[[int], None]
"""Called with a number of rows that were done."""
Item = TypeVar("Item")
Result = TypeVar("Result")
_MAX_THREADS: Final = 4
"""Maximum threads that encode rows: more would wait for the one that reads and writes them."""
LABEL, SPLIT = "label", "split"
"""Columns of staged rows in addition to the fields: the label as text, and the row's index in SPLITS."""


@dataclass(frozen=True, slots=True)
class Preparation:
    """Rows, rules and split to prepare, and a folder for temporary files."""

    rows: SourceRows | Files
    rules: Mapping[str, Rule]
    split: SplitRule
    work: Path
    progress: Progress
    every: int = 1
    """Stages only every n-th row: enough to look at a file."""


@dataclass(frozen=True, slots=True)
class Totals:
    """Counts of one field's raw values."""

    known: int
    """Training rows that have a value."""
    distinct: int
    """Distinct values of the training rows."""
    later: int
    """Validation rows that have a value."""
    unknown: int
    """Validation rows whose value has fewer training rows than the minimum count."""


class Part(Protocol):
    """Some of the staged rows. It can be pickled if the engine has processes of its own."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yields the rows in order: LABEL, SPLIT, and f0, f1, ... for the fields."""


@dataclass(frozen=True, slots=True)
class Whole:
    """All staged rows as one part."""

    staged: "Staged"
    parsed: Sequence[int]

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yields all rows in order."""
        return self.staged.batches(self.parsed)


class StagedFields(Protocol):
    """Raw rows after reading and splitting, with their final fields."""

    rows: list[int]
    """Number of rows of train, valid and test."""
    labels: dict[str | None, int]
    """Count of each label, as text."""
    skipped: int
    """Number of bad rows that were skipped."""
    untimed: int
    """Number of rows without a time that a split by time put into train."""

    def counts(self, index: int, min_count: int, ascending: bool) -> Iterator[pa.RecordBatch]:
        """Yields the raw values of a field in training rows with their counts: value, count.

        May omit values rarer than `min_count`, except lists, since a rare list may contain frequent values. With
        `ascending`, sorts values as numbers; values that are not numbers come first or last.
        """

    def parts(self) -> Sequence[Part]:
        """Returns all rows in parts, in order."""

    def each(self, work: Callable[[Item, Done], Result], items: Sequence[Item], done: Done) -> Iterator[Result]:
        """Yields `work(item, done)` of every item, in order; in the engine's processes if it has its own.

        `work` and `items` can then be pickled, and may run more than once or at the same time.
        """


class Staged(StagedFields, Protocol):
    """Raw rows after reading and splitting, before kinds are inferred: one field per raw column."""

    def parts(self, parsed: Sequence[int] = ()) -> Sequence[Part]:
        """Returns all rows in parts, in order; text of the `parsed` fields may be dictionary arrays."""

    def batches(self, parsed: Sequence[int] = ()) -> Iterator[pa.RecordBatch]:
        """Yields all rows in order; text of the `parsed` fields may be dictionary arrays."""

    def sample(self, every: int) -> pa.Table:
        """Returns every n-th row, with the columns of `batches`; the same rows in every engine."""

    def totals(self, indices: Sequence[int], min_count: int) -> dict[int, "Totals"]:
        """Counts the values of some fields in all rows of the source, even if only every n-th row is staged."""


class Engine(Settings):
    """Settings of an engine; `stage` runs it."""

    memory: int = Field(4096, ge=1024, le=2**30)
    """Memory limit in MiB, independent of the number of rows; at least 1024. Vocabularies get one eighth."""

    shard_rows: int = Field(2**26, ge=1)
    """Maximum rows per shard of the dataset: further rows go to another shard. Results do not depend on it."""

    @property
    def vocabulary_bytes(self) -> int:
        """Maximum bytes of all vocabularies; counting and lookup take a small multiple of it."""
        return (self.memory << 20) // 8

    @property
    def encoding_threads(self) -> int:
        """Threads that encode rows, if this process does; each holds a batch of rows."""
        return min(os.cpu_count() or 1, _MAX_THREADS)

    @abstractmethod
    def stage(self, plan: Preparation) -> Staged:
        """Reads, checks and splits the rows."""


class Auto(Engine):
    """Uses this process for generated rows, and DuckDB for files."""

    def stage(self, plan: Preparation) -> Staged:
        """Chooses an engine and runs it."""
        small = isinstance(plan.rows, SourceRows) and plan.rows.in_process and isinstance(plan.split, RandomSplit)
        if small:
            from fieldwise.data.engines.arrow import Arrow

            return Arrow(memory=self.memory, shard_rows=self.shard_rows).stage(plan)
        from fieldwise.data.engines.duckdb import DuckDB

        return DuckDB(memory=self.memory, shard_rows=self.shard_rows).stage(plan)


def each_here(work: Callable[[Item, Done], Result], items: Sequence[Item], done: Done) -> Iterator[Result]:
    """Yields `work(item, done)` of every item, in this process."""
    return (work(item, done) for item in items)


def field(index: int) -> str:
    """Returns the column of a field in staged rows; numbered, since names may contain any character."""
    return f"f{index}"
