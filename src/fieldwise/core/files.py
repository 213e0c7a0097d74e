"""The one way a file is written: whole, or not at all."""

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
"""Files of this process that something must still be done with before it may end."""
_END: Final = ".partial"
_numbers: Final = count()
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
    """A neighboring path to write to; it takes the place of `path` when the block ends well.

    No two writers share that path. Its mode is that of any new file, however the block writes it: safetensors, for
    one, makes files that only their owner may read. What dead processes left half-written in the folder goes.
    """
    path = path.absolute()  # a name such as a:b is a file, not an address of a file system
    work = path.with_name(f".{path.name}.{_home()}-{os.getpid()}-{next(_numbers)}{_END}")
    unfinished.add(work)
    with writing(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        _clear(path.parent.resolve())
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
            work.unlink(missing_ok=True)
            unfinished.discard(work)


def write_text(path: Path, text: str) -> None:
    """Writes text in UTF-8."""
    with replacing(path) as work:
        work.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    """Writes a plain value as JSON."""
    write_text(path, json.dumps(value, indent=1, allow_nan=False) + "\n")


@cache
def _home() -> str:
    """Where process ids mean what they mean here: this machine, and on Linux this container."""
    space = ""
    with suppress(OSError):
        space = os.readlink("/proc/self/ns/pid")  # noqa: PTH115, it is no path
    return f"{crc32(f'{node()} {space}'.encode()):08x}"


@cache
def _clear(folder: Path) -> None:
    """Removes, once for each folder, the half-written files of processes that have died."""
    if os.name != "posix":
        return  # elsewhere nobody can ask harmlessly whether a process lives
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
