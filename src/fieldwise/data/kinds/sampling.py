"""Which rows of a source are looked at: evenly spaced, the same in every engine, and bounded."""

from typing import Final

import pyarrow.parquet as pq

from fieldwise.data.files import format_of
from fieldwise.data.packed import is_packed, open_bytes
from fieldwise.data.source import Files, SourceRows

SAMPLE: Final = 100_000
"""Rows that are looked at, about."""
_CELLS: Final = 8_000_000
"""Values that are looked at, about; wide tables get fewer rows."""
_LEAST: Final = 2_000
"""Rows that are looked at in the widest table."""
_HEAD: Final = 1 << 20
"""Bytes whose lines are counted to estimate the rows of a text file."""
_COMPRESSION: Final = 4
"""About the ratio of text to its compressed size."""


def stride(rows: SourceRows | Files) -> int:
    """Returns n if every n-th row is looked at; depends only on the source, not on the engine."""
    count = (_estimated(rows) if isinstance(rows, Files) else rows.count) or 0
    most = max(_LEAST, min(SAMPLE, _CELLS // max(1, len(rows.fields))))
    return max(1, count // most)


def _estimated(files: Files) -> int:
    if format_of(files.paths[0]) == "parquet":
        return sum(int(pq.read_metadata(path.absolute()).num_rows) for path in files.paths)
    size = sum(path.stat().st_size * (_COMPRESSION if is_packed(path) else 1) for path in files.paths)
    with open_bytes(files.paths[0]) as file:
        head = file.read(_HEAD)
    return size * head.count(b"\n") // max(1, len(head))
