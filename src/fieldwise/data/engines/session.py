"""The interface between the shared expressions and one engine."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from fieldwise.data.engines.split_files import NumberSplit
from fieldwise.data.engines.written_counts import WrittenCounts
from fieldwise.data.source import Files

if TYPE_CHECKING:
    import ibis.expr.types as ir

ROW: Final = "__row"
"""Column with the number of a row, counted from 0 over all files in order."""

MAX_COUNTED: Final = 1_000
"""Labels that are counted."""


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row of text with a wrong number of columns, or with bytes that are not UTF-8."""

    path: str
    line: int | None
    text: str
    reason: str


class Session(Protocol):
    """Operations that differ between engines."""

    max_local_rows: int
    """At most this many rows are counted in this process; for few of them one query per field would take longer."""
    max_local_bytes: int
    """Maximum bytes of the values of a field that are counted in this process."""
    max_query_bytes: int | None
    """Bytes of a column whose values one query counts; a larger one is counted in parts. None: a column of any size."""
    threads: int
    """Number of threads that count in this process."""

    def read(self, files: Files) -> "ir.Table":
        """Returns the raw columns, all text if the files are text, and ROW."""

    def write(self, rows: "ir.Table", folder: Path, ordered: bool) -> WrittenCounts | None:
        """Writes Parquet files whose names sort like the rows; preserves the order of `ordered` rows.

        Returns the counts of staged rows if it counts while it writes.
        """

    def write_text(
        self, files: Files, columns: Sequence[int], split: NumberSplit, folder: Path
    ) -> WrittenCounts | None:
        """Writes staged rows of simple text without the engine: label, split, fields; returns None if it cannot.

        `columns` are the indices of the label and of the fields.
        """

    def scan(self, folder: Path, columns: Sequence[str]) -> "ir.Table":
        """Returns some columns of what `write` wrote, at a cost independent of the other columns."""

    def bad_rows(self) -> tuple[int, BadRow | None]:
        """Returns the number of rows skipped while reading, and the first of them."""
