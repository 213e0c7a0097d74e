"""What a source of raw rows must say."""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
from pydantic import Field, field_serializer

from fieldwise.core.errors import DataError
from fieldwise.core.registry import unknown
from fieldwise.core.settings import Settings
from fieldwise.data.rules import Rule

BadRows = Literal["stop", "skip"]


@dataclass(frozen=True, slots=True)
class SourceRows:
    """Raw rows in batches of columns; each call of `batches` reads them again, in the same order."""

    fields: tuple[str, ...]
    """The fields, in order."""
    label: str
    """The column that says whether a row was clicked."""
    key: tuple[str, ...]
    """The columns that name a row; the split is a hash of them."""
    batches: Callable[[], Iterator[pa.RecordBatch]]
    count: int | None = None
    """How many rows there are, where that is known before reading."""
    rules: Mapping[str, Rule] = field(default_factory=dict)
    """How fields are made; those without a rule take the values of their column as they are."""
    positive: tuple[str, ...] = ()
    """The label's values that count as a click; without them it must hold 0 and 1."""
    in_process: bool = True
    """Whether counting them in this process will do, where no engine is asked for."""


@dataclass(frozen=True, slots=True)
class Files:
    """Raw rows in files that an engine reads by itself."""

    paths: tuple[Path, ...]
    """Read one after the other."""
    columns: tuple[str, ...]
    """All columns of a file, in order."""
    fields: tuple[str, ...]
    label: str
    rules: Mapping[str, Rule]
    delimiter: str | None = ","
    """Between the columns of text; Parquet has none."""
    header: bool = True
    quoted: bool = True
    """Whether text may stand in double quotes; else a quote is a character like any other."""
    bad_rows: BadRows = "stop"
    positive: tuple[str, ...] = ()

    @property
    def is_text(self) -> bool:
        """Text, not Parquet."""
        return self.delimiter is not None

    def at(self, paths: tuple[Path, ...]) -> "Files":
        """The same columns in other files."""
        return replace(self, paths=paths)


class Source(Settings):
    """Settings of a source; `open` gives its rows."""

    min_count: int = Field(1, ge=1, lt=2**63)
    """Values seen fewer times in the training rows share the id `unknown`."""
    fields: dict[str, Rule] = Field(default_factory=dict)
    """How single fields are made, where the source's own choice will not do; what a rule leaves out stays as it is."""

    @field_serializer("fields")
    def _given(self, fields: dict[str, Rule]) -> dict[str, Any]:
        """Only what was said, so that values read back mean the same."""
        return {name: rule.model_dump(mode="json", exclude_unset=True) for name, rule in fields.items()}

    @abstractmethod
    def open(self) -> SourceRows | Files:
        """The raw rows; refuses missing or foreign files."""

    def origin(self) -> dict[str, Any]:
        """What identifies the raw rows, wherever they lie: the settings, and sizes of files."""
        return self.values()


def rules_of(rows: SourceRows | Files, source: Source) -> dict[str, Rule]:
    """A rule for every field, in order: the user's laid over the source's, each with its column and minimum count."""
    strange = [name for name in source.fields if name not in rows.fields]
    if strange:
        raise DataError(unknown("data.fields", strange[0], rows.fields))
    chosen = {name: _laid_over(rows.rules.get(name, Rule()), source.fields.get(name, Rule())) for name in rows.fields}
    return {
        name: rule.model_copy(update={"column": rule.column or name, "min_count": rule.min_count or source.min_count})
        for name, rule in chosen.items()
    }


def _laid_over(own: Rule, given: Rule) -> Rule:
    """The source's rule with what the user's says."""
    said = {key: getattr(given, key) for key in given.model_fields_set}
    return own.model_copy(update={key: value for key, value in said.items() if value is not None})
