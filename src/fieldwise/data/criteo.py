"""Criteo's display advertising challenge in its original format: tab-separated text without a header."""

from pathlib import Path
from typing import Any, Final

from fieldwise.core.errors import DataError
from fieldwise.data.files import TEXT, find, sizes
from fieldwise.data.rules import Rule
from fieldwise.data.source import BadRows, Files, MinCount, Source
from fieldwise.data.text_layout import open_text

INTEGERS: Final = tuple(f"I{i}" for i in range(1, 14))
CATEGORIES: Final = tuple(f"C{i}" for i in range(1, 27))


class Criteo(Source):
    """The original tab-separated text, plain or gzip: label, I1 to I13 (log-squared bins), C1 to C26."""

    raw: Path
    """Path of a file, a folder or a glob."""
    min_count: MinCount = 10
    """Values with fewer training rows than this map to `unknown`; at least 1, or auto (docs/data.md)."""
    bad_rows: BadRows = "stop"
    """Rows with a wrong number of columns: stop with an error, or skip and count them."""

    def open(self) -> Files:
        """Finds the files and checks the column count of each first line."""
        paths = find(self.raw, TEXT)
        for path in paths:
            with open_text(path) as file:
                found = len(file.readline().rstrip("\n").split("\t"))
            if found != 40:
                raise DataError(
                    f"Criteo: the first line of '{path}' has {found} tab-separated columns. Allowed: 40 (the "
                    "label, 13 integers and 26 texts), without a header. For other files use the source `table`."
                )
        return Files(
            paths=paths,
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
        """Returns the settings without the path, plus the file sizes."""
        return {**self.values(), "raw": sizes(find(self.raw, TEXT))}
