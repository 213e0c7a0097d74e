"""Base class of the sources of raw rows, and the rows they return."""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

import pyarrow as pa
from pydantic import Field, field_serializer

from fieldwise.core.automatic import AUTO, Auto, number_or_auto
from fieldwise.core.errors import DataError
from fieldwise.core.registry import unknown
from fieldwise.core.settings import Settings
from fieldwise.data.cells import Cells
from fieldwise.data.rules import Rule, Tiers
from fieldwise.data.split import ColumnSplit, SplitRule
from fieldwise.data.text_layout import UTF8, TextLayout
from fieldwise.data.threshold import Threshold

BadRows = Literal["stop", "skip"]


@dataclass(frozen=True, slots=True)
class SourceRows:
    """Raw rows as Arrow batches; each call of `batches` reads them again, in the same order."""

    fields: tuple[str, ...]
    """Field names, in order."""
    label: str
    """Name of the label column."""
    key: tuple[str, ...]
    """Columns that identify a row; a random split hashes them."""
    batches: Callable[[], Iterator[pa.RecordBatch]]
    count: int | None = None
    """Number of rows, if known before reading."""
    rules: Mapping[str, Rule] = field(default_factory=dict)
    """Rules of the fields; a field without a rule is a category."""
    positive: tuple[str, ...] = ()
    """Label values that count as a click; if empty, the label must be 0 or 1."""
    in_process: bool = True
    """Whether the engine `auto` counts these rows in this process."""
    cells: Cells = field(default_factory=Cells)
    """How text is read."""
    threshold: Threshold | None = None
    """The comparison that makes a click of the label, if it is a number."""
    inferred: frozenset[str] = frozenset()
    """Fields whose kind is inferred from training rows."""
    index: tuple[str, ...] = ()
    """Columns that were an index in pandas, which are no fields."""

    @property
    def is_text(self) -> bool:
        """Whether values have no types; rows in memory have."""
        return False


@dataclass(frozen=True, slots=True)
class Files:
    """Raw rows in files that an engine reads."""

    paths: tuple[Path, ...]
    """Files in reading order."""
    columns: tuple[str, ...]
    """All columns of a file, in order."""
    fields: tuple[str, ...]
    label: str
    rules: Mapping[str, Rule]
    delimiter: str | None = ","
    """Delimiter of text columns; None for Parquet."""
    header: bool = True
    quoted: bool = True
    """Whether text may be in double quotes; otherwise a quote is an ordinary character."""
    bad_rows: BadRows = "stop"
    positive: tuple[str, ...] = ()
    encoding: str = UTF8
    spaced: bool = False
    """Whether a space follows every delimiter."""
    is_json: bool = False
    """Whether the files are JSON Lines."""
    cells: Cells = field(default_factory=Cells)
    """How cells of text are read."""
    threshold: Threshold | None = None
    """The comparison that makes a click of the label, if it is a number."""
    stored: tuple[str, ...] = ()
    """Names of the columns in Parquet files, if they differ from `columns`."""
    shown: Mapping[str, Path] = field(default_factory=dict)
    """Files of the user, by the path of the file that an engine reads in its place."""
    inferred: frozenset[str] = frozenset()
    """Fields whose kind is inferred from training rows."""
    index: tuple[str, ...] = ()
    """Columns that were an index in pandas, which are no fields."""

    @property
    def is_text(self) -> bool:
        """Whether the files are text with delimiters, not Parquet or JSON Lines."""
        return self.delimiter is not None

    @property
    def layout(self) -> TextLayout:
        """The layout of text files."""
        assert self.delimiter is not None
        return TextLayout(self.columns, self.delimiter, self.header, self.encoding, self.spaced)

    def with_paths(self, paths: tuple[Path, ...]) -> "Files":
        """Returns the same description for other files."""
        return replace(self, paths=paths)


_Count = Annotated[int, Field(ge=1, lt=2**63)]
MinCount = Annotated[_Count | Auto, number_or_auto(_Count)]
"""Training rows that a value needs."""


SourceTiers = Annotated[Tiers | Auto, number_or_auto(Tiers)]
TIERS: Final = (0.1, 0.35)
"""What `auto` is, unless a run knows better."""


class Source(Settings):
    """Settings of a source; `open` returns its rows."""

    min_count: MinCount = 1
    """Values with fewer training rows than this map to `unknown`; at least 1. auto: 1, 2, 5, 10 or 20 for categories,
    whichever is clearly best for a logistic regression on the validation rows."""
    tiers: SourceTiers = AUTO
    """Fractions of a category's values, the most frequent first, at which they are cut into tiers with widths of their
    own: one number for two tiers, two for three. 0, as in the paper: one field. Categories with fewer than 100 values
    stay one field. auto: 0.1 and 0.35; in a run whose budgets all count columns 0, of a factory's model 0.25."""
    fields: dict[str, Rule] = Field(default_factory=dict)
    """Rules that override the source's, by field; keys that a rule leaves out keep the source's value."""

    @field_serializer("fields")
    def _given(self, fields: dict[str, Rule]) -> dict[str, Any]:
        """Serializes only the keys that were set, so that settings mean the same when read back."""
        return {name: rule.model_dump(mode="json", exclude_unset=True) for name, rule in fields.items()}

    @property
    def least_count(self) -> int:
        """`min_count`, 1 until `auto` is chosen."""
        return 1 if self.min_count == AUTO else self.min_count

    @property
    def cuts(self) -> Tiers:
        """`tiers`, as numbers."""
        return TIERS if self.tiers == AUTO else self.tiers

    def cut(self, tiers: Tiers) -> Self:
        """Returns the source with these tiers in place of `auto`."""
        return self.model_copy(update={"tiers": tiers}) if self.tiers == AUTO else self

    @abstractmethod
    def open(self) -> SourceRows | Files:
        """Returns the raw rows; refuses missing files and files of another format."""

    def origin(self) -> dict[str, Any]:
        """Returns what identifies the raw rows at any location: settings and file sizes."""
        return self.values()


def rules_of(rows: SourceRows | Files, source: Source, split: SplitRule | None = None) -> dict[str, Rule]:
    """Returns a rule per field: the source's, overridden by the user's, with column and minimum count set.

    The column of a split by column is no field unless the settings name it.
    """
    strange = [name for name in source.fields if name not in rows.fields]
    if strange:
        raise DataError(unknown("data.fields", strange[0], rows.fields))
    chosen = {
        name: override_rule(rows.rules.get(name, Rule()), source.fields.get(name, Rule())) for name in rows.fields
    }
    if isinstance(split, ColumnSplit) and split.column not in source.fields:
        chosen.pop(split.column, None)  # it determines the split and is not an input
    return {name: complete_rule(name, rule, source) for name, rule in chosen.items()}


def complete_rule(name: str, rule: Rule, source: Source) -> Rule:
    """Returns the rule with column and minimum count set."""
    return rule.model_copy(update={"column": rule.column or name, "min_count": rule.min_count or source.least_count})


def override_rule(own: Rule, given: Rule) -> Rule:
    """Returns the source's or inferred rule with the keys that the user set."""
    changes = {key: getattr(given, key) for key in given.model_fields_set}
    return own.model_copy(update={key: value for key, value in changes.items() if value is not None})
