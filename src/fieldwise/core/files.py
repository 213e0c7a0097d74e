"""Atomic writes: a file is written completely or not at all."""

import errno
import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from itertools import count
from pathlib import Path
from platform import node
from typing import Any, Final
from zlib import crc32

from fieldwise.core.errors import DiskError, FieldwiseError

unfinished: Final[set[Path]] = set()
"""Files that this process must replace or remove before it exits."""
_END: Final = ".partial"
_numbers: Final = count()
_FULL: Final = tuple(os.strerror(number) for number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG))
"""The system's messages for a full disk; libraries pass them on as text."""


def full(error: BaseException) -> str | None:
    """The system's message if the error means that the disk is full, else None."""
    if isinstance(error, OSError) and error.errno is not None and os.strerror(error.errno) in _FULL:
        return os.strerror(error.errno)
    if isinstance(error, FieldwiseError):  # its text may quote a user's rows
        return None
    return next((words for words in _FULL if words in str(error)), None)


@contextmanager
def writing(folder: Path, advice: str = "Free some, then run the same command again.") -> Iterator[None]:
    """Raises `DiskError`, which names the folder and gives the advice, if the disk is full."""
    try:
        yield
    except Exception as error:
        reason = full(error)
        if reason is None:
            raise
        raise DiskError(f"No room left at '{folder}' ({reason}). {advice}") from error


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yields a temporary path in the same folder; it replaces `path` if the block succeeds.

    No two writers share that path. The file gets the default mode of new files, even from writers that restrict it,
    such as safetensors. Partial files of dead processes are removed from the folder.
    """
    path = path.absolute()  # a name such as a:b is a file, not an address of a file system
    work = path.with_name(f".{path.name}.{_home()}-{os.getpid()}-{next(_numbers)}{_END}")
    with writing(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        _clear(path.parent.resolve())
        unfinished.add(work)
        try:
            with work.open("xb") as new:
                mode = stat.S_IMODE(os.fstat(new.fileno()).st_mode)
            yield work
            with work.open("rb+") as file:
                os.fsync(file.fileno())
            if stat.S_IMODE(work.stat().st_mode) != mode:
                work.chmod(mode)
            work.replace(path)
        finally:
            try:
                work.unlink(missing_ok=True)
            finally:
                unfinished.discard(work)


def write_text(path: Path, text: str) -> None:
    """Writes text as UTF-8, atomically."""
    with replacing(path) as work:
        work.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    """Writes a plain value as JSON, atomically."""
    write_text(path, json.dumps(value, indent=1, allow_nan=False) + "\n")


@cache
def _home() -> str:
    """The scope of process ids: this machine and, on Linux, this container."""
    space = ""
    with suppress(OSError):
        space = os.readlink("/proc/self/ns/pid")  # noqa: PTH115, not a path
    return f"{crc32(f'{node()} {space}'.encode()):08x}"


@cache
def _clear(folder: Path) -> None:
    """Removes partial files of dead processes, once per folder."""
    if os.name != "posix":
        return  # other systems have no harmless check that a process is alive
    with os.scandir(folder) as entries:
        names = [entry.name for entry in entries if entry.name.startswith(".") and entry.name.endswith(_END)]
    for name in names:
        home, _, rest = name.removesuffix(_END).rpartition(".")[2].partition("-")
        process = rest.partition("-")[0]
        if home == _home() and process.isdigit() and not _lives(int(process)):
            (folder / name).unlink(missing_ok=True)


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        pass
    return True
