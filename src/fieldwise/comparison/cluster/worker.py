"""What runs on the workers of a cluster, in a thread of the worker's process."""

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from uuid import uuid4

from distributed import Status, get_worker

from fieldwise.comparison.cells import Unit, Work, one_line
from fieldwise.core.errors import DataError, FieldwiseError, RunError
from fieldwise.core.hints import speak
from fieldwise.core.records import Epoch
from fieldwise.core.watcher import Watcher
from fieldwise.data.store import Dataset
from fieldwise.train.room import check_room
from fieldwise.train.task import choose_device

_ALIVE: Final = (Status.running, Status.paused)
_one_at_a_time = threading.Lock()
"""Trainings set the random state of the process, so that two clients must not train in one process."""


class Unwanted(BaseException):
    """Nobody waits for the unit any more. Not an `Exception`, since the unit did not fail."""


class WhileWanted(Watcher):
    """Ends a unit early when its client has stopped or died, since a running task cannot be cancelled."""

    def __init__(self) -> None:
        self._worker = get_worker()
        self._key = self._worker.get_current_task()

    def unwanted(self) -> bool:
        """Whether the task was cancelled, which Dask also does when its client is gone."""
        task = self._worker.state.tasks.get(self._key)
        return task is None or task.state == "cancelled" or self._worker.status not in _ALIVE

    def begin(self, title: str, done: bool) -> None:
        """Raises `Unwanted` if nobody waits for the unit."""
        if self.unwanted():
            raise Unwanted

    def step(self, stage: str, epoch: int, step: int, steps: int) -> None:
        """Raises `Unwanted` if nobody waits for the unit."""
        self.begin(stage, False)

    def epoch(self, stage: str, epoch: Epoch) -> None:
        """Raises `Unwanted` if nobody waits for the unit."""
        self.begin(stage, False)

    def gate(self, step: int, live: int, cost: int, limit: int, widths: Mapping[str, int]) -> None:
        """Raises `Unwanted` if nobody waits for the unit."""
        self.begin("search", False)


def do(work: Work, unit: Unit, flags: bool) -> str | None:
    """Runs a unit on this worker; returns one line if it failed. `flags`: whether hints name flags."""
    watcher = WhileWanted()
    while not _one_at_a_time.acquire(timeout=1):
        watcher.begin(str(unit), False)
    try:
        speak(flags)
        return work.do(unit, watcher, watcher.unwanted)
    except RunError:  # waiting for another process ended, since nobody waits for this one
        if watcher.unwanted():
            raise Unwanted from None
        raise
    finally:
        _one_at_a_time.release()


@dataclass(frozen=True)
class Check:
    """What a worker needs in order to run units of a comparison."""

    work: Work
    models: tuple[str, ...]
    """Labels of the models that are still to be pretrained."""
    fingerprint: str
    """The fingerprint of the dataset."""
    token: str
    """The name of a new file that the client wrote in the comparison's folder."""
    flags: bool
    """Whether hints name flags."""

    def problem(self) -> str | None:
        """Why this worker cannot run units, in one line, or None."""
        speak(self.flags)
        out, settings = self.work.out, self.work.settings
        try:
            self._check_folder()
            data = Dataset.open(self.work.dataset)
            if data.fingerprint != self.fingerprint:
                raise DataError(f"its '{self.work.dataset}' is another dataset. Share that folder, too.")
            device = choose_device(settings.shared.run.device)
            for run in (settings.runs[model, settings.compare.methods[0]] for model in self.models):
                check_room(run.model, data.schema, run.pretrain, device)
        except OSError as error:
            return f"it cannot read and write '{out}' ({error}). Every machine must see that folder at the same path."
        except FieldwiseError as error:
            return one_line(error)
        return None

    def _check_folder(self) -> None:
        """Raises `OSError` unless this machine sees the client's file in the folder, and can write there."""
        (self.work.out / self.token).stat()
        mine = self.work.out / f"{self.token}-{uuid4().hex}"
        mine.write_text("", encoding="ascii")
        mine.unlink()
