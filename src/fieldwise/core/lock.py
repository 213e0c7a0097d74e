"""Who works in a folder: one process at a time, and others are told which.

The lock is the operating system's, so it ends with its process, however that ends. Beside it lies who holds it.
"""

import json
import os
import shlex
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from platform import node
from typing import Final

from filelock import FileLock, Timeout, lock_descriptor

from fieldwise.core.errors import RunError
from fieldwise.core.files import unfinished, write_json

LOCK: Final = ".lock"
_TRIES: Final = 3
_WAIT: Final = 0.3
"""Seconds for which a lock is tried: `holder` of another process may have it for a moment."""


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
def alone(folder: Path, *, beside: bool = False) -> Iterator[None]:
    """While it lasts, no one else works in the folder; says who does, where one does.

    With `beside`, the lock lies beside the folder, which then may be absent and stays as it is.
    """
    place = _place(folder, beside)
    made = [part for part in (place.parent, *place.parent.parents) if not part.exists()]
    place.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(place, timeout=_WAIT, thread_local=False)
    try:
        lock.acquire()
    except Timeout:
        raise RunError(
            f"'{folder}' is in use by {_read(place) or 'another process'}. "
            "Wait until that ends, stop it, or name another --out."
        ) from None
    unfinished.add(place)
    try:
        write_json(_about(place), asdict(Holder(os.getpid(), node(), this_command(), _now())))
        yield
    finally:
        with suppress(OSError):  # while it is still ours, so that nobody else's goes
            _about(place).unlink(missing_ok=True)
            place.unlink(missing_ok=True)
        lock.release()
        unfinished.discard(place)
        with suppress(OSError):  # one of them holds something
            for part in made:
                part.rmdir()


def holder(folder: Path) -> Holder | str | None:
    """Who works in a folder, in words where that is all that is known; None where nobody does."""
    place = _place(folder, beside=False)
    for _ in range(_TRIES):  # another that asks the same may have the lock for a moment
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
            break  # a file system that does not let readers ask
        finally:
            os.close(descriptor)
        time.sleep(_WAIT / 10)
    return _read(place) or "another process"


def this_command() -> str:
    """The command that this process was started with."""
    return shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])


def _place(folder: Path, beside: bool) -> Path:
    whole = folder.absolute()
    return whole.parent / f".{whole.name}{LOCK}" if beside else whole / LOCK


def _about(place: Path) -> Path:
    return place.with_name(f"{place.name}.json")


def _now() -> str:
    return datetime.now().astimezone().isoformat(sep=" ", timespec="seconds")


def _read(place: Path) -> Holder | None:
    with suppress(OSError, ValueError, TypeError, KeyError):
        found = json.loads(_about(place).read_text(encoding="utf-8"))
        return Holder(int(found["process"]), str(found["host"]), str(found["command"]), str(found["since"]))
    return None
