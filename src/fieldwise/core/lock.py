"""Folder locks: one process works in a folder at a time, and the error for others names it.

The operating system holds the lock, so it ends with its process. A JSON file next to it names the holder.
"""

import json
import os
import shlex
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from platform import node
from typing import Final

from filelock import FileLock, Timeout, lock_descriptor

from fieldwise.core.errors import RunError
from fieldwise.core.files import unfinished, write_json
from fieldwise.core.hints import either

LOCK: Final = ".lock"
_TRIES: Final = 3
_WAIT: Final = 0.3
"""Seconds to retry a lock: `holder` in another process may have it briefly."""


@dataclass(frozen=True)
class Holder:
    """The process that works in a folder."""

    process: int
    host: str
    command: str
    since: str

    def __str__(self) -> str:
        where = "" if self.host == node() else f" on {self.host}"
        return f"process {self.process}{where} since {self.since} ({self.command})"


@contextmanager
def exclusive(folder: Path, *, outside: bool = False, until: Callable[[], bool] | None = None) -> Iterator[None]:
    """Locks a folder for this process; the error names the process that holds it.

    With `outside`, the lock file is next to the folder, which may be absent and is not touched. With `until`, it
    waits for the other process until that function returns true.
    """
    place = _place(folder, outside)
    made = [part for part in (place.parent, *place.parent.parents) if not part.exists()]
    lock = FileLock(place, timeout=_WAIT if until is None else -1, thread_local=False)
    try:
        _acquire(lock, place.parent, until)
    except Timeout:
        raise RunError(
            f"'{folder}' is in use by {_read(place) or 'another process'}. "
            f"Wait until it ends, stop it, or choose another {either('--out', 'folder')}."
        ) from None
    unfinished.add(place)
    try:
        write_json(_about(place), asdict(Holder(os.getpid(), node(), this_command(), _now())))
        yield
    finally:
        with suppress(OSError):  # while we hold the lock, so that no other process's file is removed
            _about(place).unlink(missing_ok=True)
            place.unlink(missing_ok=True)
        lock.release()
        unfinished.discard(place)
        with suppress(OSError):  # a folder is not empty
            for part in made:
                part.rmdir()


def holder(folder: Path) -> Holder | str | None:
    """The process that works in a folder, or text if its details are unknown; None if there is none."""
    place = _place(folder, outside=False)
    for _ in range(_TRIES):  # another `holder` call may have the lock briefly
        try:
            descriptor = os.open(place, os.O_RDONLY)
        except FileNotFoundError:
            return None
        except OSError:
            break
        try:
            if lock_descriptor(descriptor, blocking=False):
                return None
        except OSError:
            break  # the file system does not let readers lock
        finally:
            os.close(descriptor)
        time.sleep(_WAIT / 10)
    return _read(place) or "another process"


def _acquire(lock: FileLock, folder: Path, until: Callable[[], bool] | None) -> None:
    for left in reversed(range(_TRIES)):
        folder.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire(cancel_check=until)
            return
        except FileNotFoundError:  # a process that ends removes a folder that it made and left empty
            if not left:
                raise


def this_command() -> str:
    """The command line of this process."""
    return shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])


def _place(folder: Path, outside: bool) -> Path:
    whole = folder.absolute()
    return whole.parent / f".{whole.name}{LOCK}" if outside else whole / LOCK


def _about(place: Path) -> Path:
    return place.with_name(f"{place.name}.json")


def _now() -> str:
    return datetime.now().astimezone().isoformat(sep=" ", timespec="seconds")


def _read(place: Path) -> Holder | None:
    with suppress(OSError, ValueError, TypeError, KeyError):
        found = json.loads(_about(place).read_text(encoding="utf-8"))
        return Holder(int(found["process"]), str(found["host"]), str(found["command"]), str(found["since"]))
    return None
