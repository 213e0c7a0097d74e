"""The one way a file is written: whole, or not at all."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A neighbouring path to write to; it takes the place of `path` when the block ends well."""
    path.parent.mkdir(parents=True, exist_ok=True)
    work = path.with_name(f".{path.name}.partial")
    try:
        yield work
        with work.open("rb+") as file:
            os.fsync(file.fileno())
        work.replace(path)
    finally:
        work.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Writes text in UTF-8."""
    with replacing(path) as work:
        work.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    """Writes a plain value as JSON."""
    write_text(path, json.dumps(value, indent=1, allow_nan=False) + "\n")
