"""What each column of a table is, as a value that a console, a notebook, a report and a file can show."""

from typing import Any, Final

from pydantic import Field, FiniteFloat

from fieldwise.core.display import Cells, Shown, View
from fieldwise.core.records import Record

KINDS: Final = "kinds.json"
"""File of a dataset or run folder with its check."""
HEADS: Final = ("column", "kind", "values", "null %", "unknown %", "examples", "why")
_EXAMPLE: Final = 24
"""Characters of an example that are shown."""


class ColumnCheck(Record):
    """One raw column: what it is, why, and what is suspicious about it."""

    name: str
    kind: str
    """category, number, time or list: a field; unique, constant or weight: left out."""
    reason: str
    rules: dict[str, dict[str, Any]]
    """Fields that are made from the column, and the settings of each; none if it is left out."""
    cardinality: int = Field(ge=0)
    """Distinct values in training rows."""
    at_least: bool = False
    """Whether the cardinality was counted only in the sampled rows."""
    nulls: FiniteFloat
    """Fraction of training rows without a value."""
    unknown: FiniteFloat | None
    """Fraction of validation rows whose value is not known from the training rows; None for bins and parts of times.

    An upper bound if `at_least`, since the sampled training rows have fewer values.
    """
    examples: tuple[str, ...]
    """A few of the most frequent values."""
    suspects: tuple[str, ...]
    """What may be wrong, in plain words."""

    @property
    def fields(self) -> tuple[str, ...]:
        """Names of the fields that are made from the column."""
        return tuple(self.rules)

    def cells(self) -> Cells:
        """The row of a table."""
        shown = ", ".join(text if len(text) <= _EXAMPLE else f"{text[: _EXAMPLE - 1]}…" for text in self.examples)
        unknown = "" if self.unknown is None else f"{'≤ ' if self.at_least else ''}{100 * self.unknown:.1f}"
        count = f"{'≥ ' if self.at_least else ''}{self.cardinality:,}"
        return self.name, self.kind, count, f"{100 * self.nulls:.1f}", unknown, shown, self.reason


class Check(Shown, Record):
    """The columns of a table; shows itself as a table in consoles and notebooks."""

    source: str
    """File or source that was checked."""
    label: str
    rows: dict[str, int]
    """Rows of each split; of the sampled rows if `every` is above 1."""
    clicks: dict[str, int]
    every: int = Field(1, ge=1)
    """n if only every n-th row was looked at."""
    skipped: int = Field(0, ge=0)
    """Rows that cannot be read."""
    columns: tuple[ColumnCheck, ...]

    @property
    def suspects(self) -> tuple[str, ...]:
        """One line per suspicious column and reason."""
        return tuple(f"{column.name}: {text}" for column in self.columns for text in column.suspects)

    @property
    def is_inferred(self) -> bool:
        """Whether the kind of any column was inferred."""
        return any(not column.reason.startswith("set ") for column in self.columns)

    @property
    def kinds(self) -> dict[str, str]:
        """The kind of each column."""
        return {column.name: column.kind for column in self.columns}

    def view(self) -> View:
        """A line about the rows, one per suspect, and a row per column."""
        total, clicks = sum(self.rows.values()), sum(self.clicks.values())
        rows = f"{total:,} rows" + ("" if self.every == 1 else f" (1 of every {self.every})")
        title = f"{self.source}: {rows}, label '{self.label}' ({clicks / max(1, total):.1%} clicks)"
        skipped = (f"rows that cannot be read: {self.skipped:,}",) if self.skipped else ()
        return View(title, (*skipped, *self.suspects), HEADS, tuple(column.cells() for column in self.columns))


def with_counts(check: Check, info: dict[str, Any]) -> Check:
    """Returns the check with the counts of all rows, from the description of the dataset that was made."""
    places = {field["name"]: index for index, field in enumerate(info["fields"])}
    rows = info["rows"]

    def counted(column: ColumnCheck) -> ColumnCheck:
        if any(name in info["dropped"] for name in column.fields):
            return column.model_copy(update={"kind": "constant"})
        if not column.fields:
            return column
        index = places[column.fields[0]]
        unknown = info["splits"]["valid"]["unknown"][index] / max(1, rows["valid"])
        changes: dict[str, Any] = {"nulls": info["splits"]["train"]["nulls"][index] / max(1, rows["train"])}
        if column.kind in ("category", "list", "constant"):  # constant only in the sampled rows
            changes["kind"] = "list" if column.kind == "list" else "category"
            known = info["fields"][index]["cardinality"] - 1
            changes |= {"unknown": unknown, "cardinality": known, "at_least": False}
        return column.model_copy(update=changes)

    columns = tuple(counted(column) for column in check.columns)
    clicks = {name: split["clicks"] for name, split in info["splits"].items()}
    return check.model_copy(update={"rows": rows, "clicks": clicks, "every": 1, "columns": columns})
