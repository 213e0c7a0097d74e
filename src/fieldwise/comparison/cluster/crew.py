"""Units on the workers of a cluster, one at a time on each."""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from distributed import Future

from fieldwise.comparison.cells import Unit, Work, one_line
from fieldwise.comparison.cluster.client import Cluster, DiedError
from fieldwise.comparison.cluster.roster import Roster
from fieldwise.comparison.cluster.worker import do
from fieldwise.comparison.crew import Crew, Outcome
from fieldwise.core.hints import speaks_flags

_LOOK: Final = 0.5
"""Seconds between looks at the workers."""
_VISIBLE: Final = 60.0
"""Seconds after which a file that another machine wrote is visible; NFS remembers for up to 60 that there was none."""


class ClusterCrew(Crew):
    """Workers of a Dask cluster. A unit is bound to one worker, so that it is known which unit a dead one ran."""

    tries = 3

    def __init__(self, work: Work, units: Sequence[Unit], cluster: Cluster, say: Callable[[str], None]) -> None:
        super().__init__(work, units)
        self._cluster, self._roster = cluster, Roster(cluster, work, units, say)
        self._futures: dict[Unit, tuple[str, Future[str | None]]] = {}
        self._checked = False

    def _running(self) -> Sequence[Unit]:
        return list(self._futures)

    def _start(self) -> None:
        """Checks every worker before the first unit, and gives each free worker the next unit that is ready."""
        if not self._checked:
            self._roster.check_all()
            self._checked = True
        busy = {worker for worker, _ in self._futures.values()}
        free = [worker for worker in self._roster.usable() if worker not in busy]
        for worker, unit in zip(free, self._ready(), strict=False):
            self._take(unit)
            self._futures[unit] = worker, self._cluster.submit(worker, do, self._work, unit, speaks_flags())
        self._cluster.most = max(self._cluster.most, len(self._futures))

    def _ended(self) -> Iterator[Outcome]:
        """Waits briefly, and yields the units that ended or whose worker died."""
        if self._futures:
            self._cluster.wait([future for _, future in self._futures.values()], _LOOK)
        elif self._waiting:
            time.sleep(_LOOK)
        there = self._cluster.workers()
        for unit, (worker, future) in list(self._futures.items()):
            if future.done():
                del self._futures[unit]
                yield from self._outcome(unit, future)
            elif worker not in there:
                del self._futures[unit]
                self._cluster.cancel([future])
                yield from self._worker_died(unit)

    def _outcome(self, unit: Unit, future: "Future[str | None]") -> Iterator[Outcome]:
        try:
            error = self._cluster.result(future)
        except DiedError:
            yield from self._worker_died(unit)
            return
        except Exception as problem:  # outside the unit itself
            error = self._work.give_up(unit, one_line(problem))
        await_file(unit, self._work, "record.json" if error is None else "failed.json")
        yield from self._settle(unit, error)

    def _worker_died(self, unit: Unit) -> Iterator[Outcome]:
        why = f"its worker died {self.tries} times, perhaps because memory ran out. Give workers more memory."
        yield from self._died(unit, why)

    def _close(self) -> None:
        self._roster.close()
        self._cluster.cancel([future for _, future in self._futures.values()])


def await_file(unit: Unit, work: Work, name: str) -> None:
    """Waits until this machine sees the file that a worker wrote last."""
    folder, end = unit.folder(work.settings, work.out), time.monotonic() + _VISIBLE
    while time.monotonic() < end and not any(file.name == name for file in folder.iterdir()):
        time.sleep(_LOOK)
