"""Criteo's display advertising challenge in its original form: tab-separated text without a header."""

from pathlib import Path
from typing import Any, Final

from pydantic import Field

from fieldwise.data.files import find, sizes
from fieldwise.data.rules import Rule
from fieldwise.data.source import BadRows, Files, Source

INTEGERS: Final = tuple(f"I{i}" for i in range(1, 14))
CATEGORIES: Final = tuple(f"C{i}" for i in range(1, 27))


class Criteo(Source):
    """The original tab-separated text: label, I1 to I13 (log-squared bins), C1 to C26; plain or gz."""

    raw: Path
    """A file, a folder or a glob."""
    min_count: int = Field(10, ge=1)
    """Values seen fewer times in the training rows share the id `unknown`."""
    bad_rows: BadRows = "stop"
    """Rows with another number of columns: stop at them, or skip and count them."""

    def open(self) -> Files:
        """The files, whose columns are known."""
        return Files(
            paths=find(self.raw),
            columns=("label", *INTEGERS, *CATEGORIES),
            fields=(*INTEGERS, *CATEGORIES),
            label="label",
            rules=dict.fromkeys(INTEGERS, Rule(kind="log-squared")),
            delimiter="\t",
            header=False,
            quoted=False,
            bad_rows=self.bad_rows,
        )

    def origin(self) -> dict[str, Any]:
        """The settings less the place, and the sizes of the files."""
        return {**self.values(), "raw": sizes(find(self.raw))}
