"""Commands that a launcher such as torchrun has started in several processes."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Final

from fieldwise.core.errors import ElsewhereError, SettingsError

TRAIN: Final = ("run", "pretrain", "search", "retrain")
"""Commands that train, and so may use several processes."""


def rank() -> int:
    """The number of this process among those of its launcher; 0 without one."""
    found = os.environ.get("RANK", "0")
    return int(found) if started() and found.isdigit() else 0


def started() -> bool:
    """Whether a launcher has started several processes."""
    return os.environ.get("WORLD_SIZE", "1") != "1" and "RANK" in os.environ


@contextmanager
def together(command: str) -> Iterator[None]:
    """A context in which the processes of a launcher, if there is one, work on one command. Only the first prints."""
    if not started():
        yield
        return
    if command not in TRAIN:
        if rank():
            raise ElsewhereError("The first process says why.")
        raise SettingsError(
            f"`{command}` got WORLD_SIZE={os.environ['WORLD_SIZE']} from a launcher such as torchrun, and uses one "
            f"process. Only {', '.join(TRAIN)} use several. Start it without the launcher."
        )
    from fieldwise.processes.join import joined

    if rank() == 0:
        with joined():
            yield
    else:
        with Path(os.devnull).open("w") as none, redirect_stdout(none), redirect_stderr(none), joined():
            yield
