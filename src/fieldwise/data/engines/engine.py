"""What every engine gives: raw rows with their split, and how often each training value is there."""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pyarrow as pa
from pydantic import Field

from fieldwise.core.settings import Settings
from fieldwise.data.rules import Rule
from fieldwise.data.source import Files, SourceRows
from fieldwise.data.split import RandomSplit, SplitRule

Progress = Callable[[str, int, int | None], None]
"""Called with a stage's name, rows or fields done, and how many in all (None while unknown)."""
LABEL, PLACE = "label", "place"
"""The columns of staged rows beside the fields: the label as text, and the row's place in SPLITS."""


@dataclass(frozen=True, slots=True)
class Preparation:
    """What is to be prepared, and where there is room to work."""

    rows: SourceRows | Files
    rules: Mapping[str, Rule]
    split: SplitRule
    work: Path
    progress: Progress


class Staged(Protocol):
    """Raw rows after reading and splitting."""

    rows: list[int]
    """Of train, valid and test."""
    labels: dict[str | None, int]
    """How often each label is there, as text."""
    skipped: int
    """Bad rows that were left out."""

    def counts(self, index: int, min_count: int, rising: bool) -> Iterator[pa.RecordBatch]:
        """How often each raw value of a field is there in training rows: value, count.

        Rarer values than `min_count` may be left out, but no lists: what a rare list holds may be frequent. With
        `rising`, values come by number, and those that are none first or last.
        """

    def batches(self) -> Iterator[pa.RecordBatch]:
        """All rows in order: LABEL, PLACE, and f0, f1, ... for the fields."""


class Engine(Settings):
    """Settings of an engine; `stage` makes it work."""

    memory: int = Field(4096, ge=1024)
    """MiB that preparing may take, however many rows there are; an eighth of it is for the values of all fields."""

    @property
    def room(self) -> int:
        """Bytes that the values of all fields may take; counting and looking them up takes some times as much."""
        return (self.memory << 20) // 8

    @abstractmethod
    def stage(self, plan: Preparation) -> Staged:
        """Reads, checks and splits the rows."""


class Auto(Engine):
    """This process for rows that a source makes itself, DuckDB for files."""

    def stage(self, plan: Preparation) -> Staged:
        """Chooses an engine, which does the work."""
        from fieldwise.data.engines.arrow import Arrow
        from fieldwise.data.engines.duckdb import DuckDB

        small = isinstance(plan.rows, SourceRows) and plan.rows.in_process and isinstance(plan.split, RandomSplit)
        return (Arrow if small else DuckDB)(memory=self.memory).stage(plan)


def field(index: int) -> str:
    """The name of a field's column in staged rows; numbered, since names may hold any character."""
    return f"f{index}"
