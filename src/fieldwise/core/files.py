"""The one way a file is written: whole, or not at all."""

import errno
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from fieldwise.core.errors import DiskError, FieldwiseError

_FULL: Final = tuple(os.strerror(number) for number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG))
"""What the system says where no more can be written; libraries pass it on as text."""


def full(error: BaseException) -> str | None:
    """What the system says of a disk that is full, where this is such an error."""
    if isinstance(error, OSError) and error.errno is not None and os.strerror(error.errno) in _FULL:
        return os.strerror(error.errno)
    if isinstance(error, FieldwiseError):  # which may quote rows
        return None
    return next((words for words in _FULL if words in str(error)), None)


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Turns a full disk into one line that names the folder."""
    try:
        yield
    except Exception as error:
        reason = full(error)
        if reason is None:
            raise
        raise DiskError(
            f"No room left at '{folder}' ({reason}). Free some there, then run the same command again."
        ) from error


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A neighbouring path to write to; it takes the place of `path` when the block ends well."""
    work = path.with_name(f".{path.name}.partial")
    with writing(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
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
