"""Reads untrusted files: regular files of limited size, plain values of limited depth and size."""

import errno
import json
import math
import os
import re
import stat
from datetime import date, datetime, time
from io import BufferedReader
from pathlib import Path
from typing import Any, Final

LIMIT: Final = 2**28
"""Maximum bytes of a file of plain values."""
DEPTH: Final = 64
"""Maximum nesting depth of plain values."""
_LONE: Final = re.compile(r"\\u[dD][89a-fA-F]")
"""An escape that may be half of a surrogate pair."""


def open_regular(path: Path) -> BufferedReader:
    """Opens a regular file for reading; anything else, such as a pipe or a device, is an OSError."""
    descriptor = os.open(
        path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)
    )  # opening a pipe would block until a writer comes
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def check_regular(path: Path) -> int:
    """The bytes of a regular file, to check before another library opens it; anything else is an OSError."""
    with open_regular(path) as file:
        return os.fstat(file.fileno()).st_size


def read_text(path: Path, limit: int = LIMIT) -> str:
    """The UTF-8 text of a regular file; OSError or ValueError if it is not one or exceeds `limit` bytes."""
    with open_regular(path) as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise ValueError(f"it has more than {limit:,} bytes")
    return data.decode("utf-8")


def read_json(path: Path, limit: int = LIMIT) -> Any:
    """The plain value of a JSON file; OSError if it cannot be read, ValueError if its text is not valid."""
    return parse_json(read_text(path, limit))


def check_safetensors(path: Path) -> None:
    """Refuses a safetensors file that is longer or shorter than its header says, before it is mapped into memory."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        length = int.from_bytes(file.read(8), "little")
        if length > min(LIMIT, size):
            raise ValueError(f"'{path.name}' has a header of {length:,} bytes")
        header = parse_json(file.read(length).decode("utf-8"))
    entries = header.values() if isinstance(header, dict) else ()
    ends = [entry["data_offsets"][1] for entry in entries if isinstance(entry, dict) and "data_offsets" in entry]
    if size != 8 + length + max(ends, default=0):
        raise ValueError(f"'{path.name}' has {size:,} bytes, its header says {8 + length + max(ends, default=0):,}")


def parse_json(text: str) -> Any:
    """The plain value of JSON text; ValueError if it is invalid, nested too deep, or holds NaN or too large numbers.

    Integers have at most 20 characters, so that no caller overflows.
    """
    try:
        value = json.loads(text, parse_constant=_refuse, parse_float=_finite, parse_int=_integer)
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    check_plain(value)
    if _LONE.search(text):
        json.dumps(value, ensure_ascii=False).encode()  # UnicodeEncodeError is a ValueError
    return value


def check_plain(value: Any) -> None:
    """Raises ValueError for nesting above `DEPTH`, dates, times, NaN and infinities."""
    level, depth = [value], 0
    while level:
        if depth > DEPTH:
            raise ValueError(f"it is nested more than {DEPTH} deep")
        inner: list[Any] = []
        for entry in level:
            if isinstance(entry, dict):
                inner.extend(entry.values())
            elif isinstance(entry, list):
                inner.extend(entry)
            elif isinstance(entry, datetime | date | time):
                raise ValueError(f"it holds the date or time {entry}; write it in quotes")
            elif isinstance(entry, float) and not math.isfinite(entry):
                raise ValueError(f"it holds {entry}, which is not a finite number")
        level, depth = inner, depth + 1


def _refuse(word: str) -> Any:
    raise ValueError(f"it holds {word}, which is not a finite number")


def _finite(text: str) -> float:
    value = float(text)
    return value if math.isfinite(value) else _refuse(text[:20])


def _integer(text: str) -> int:
    if len(text) > 20:
        raise ValueError(f"it holds a number of {len(text)} digits")
    return int(text)
