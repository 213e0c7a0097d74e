"""Runs units of a comparison in other processes: a cell waits for its pretraining, a dead process loses no unit."""

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

from fieldwise.comparison.cells import Unit, Work

Outcome = tuple[Unit, str | None]
"""A unit, and one line if it failed, else None."""


class Crew(ABC):
    """Processes that run units in order. Subclasses say where."""

    tries: int
    """A unit whose process died this many times fails."""

    def __init__(self, work: Work, units: Sequence[Unit]) -> None:
        self._work, self._waiting = work, list(units)
        self._tries = dict.fromkeys(units, 0)

    def outcomes(self, limit: float | None) -> Iterator[Outcome]:
        """Yields each unit as it ends; none starts after `limit` (`time.monotonic`)."""
        try:
            while self._waiting or self._running():
                if not in_time(limit):
                    self._waiting.clear()
                self._start()
                yield from self._ended()
        finally:
            self._close()

    @abstractmethod
    def _running(self) -> Sequence[Unit]:
        """The units that have started and not ended."""

    @abstractmethod
    def _start(self) -> None:
        """Starts the first units that are ready, where there is room."""

    @abstractmethod
    def _ended(self) -> Iterator[Outcome]:
        """Waits for a while, and yields the outcomes there are then."""

    @abstractmethod
    def _close(self) -> None:
        """Ends units that still run, since an error or the caller ended the comparison; the same command resumes."""

    def _ready(self) -> list[Unit]:
        """The waiting units whose pretraining is neither waiting nor running."""
        busy = [*self._waiting, *self._running()]
        trained_later = {(unit.model, unit.seed) for unit in busy if unit.method is None}
        return [u for u in self._waiting if u.method is None or (u.model, u.seed) not in trained_later]

    def _take(self, unit: Unit) -> None:
        """Counts a try of a unit that starts now."""
        self._waiting.remove(unit)
        self._tries[unit] += 1

    def _died(self, unit: Unit, why: str) -> Iterator[Outcome]:
        """Runs a unit again whose process died, or gives up."""
        if self._tries[unit] < self.tries:
            self._waiting.insert(0, unit)
        else:
            yield from self._settle(unit, self._work.give_up(unit, why))

    def _settle(self, unit: Unit, error: str | None) -> Iterator[Outcome]:
        """Yields a unit that ended, and the cells that can no longer run."""
        yield unit, error
        if error and unit.method is None:
            for cell in [u for u in self._waiting if (u.model, u.seed) == (unit.model, unit.seed)]:
                self._waiting.remove(cell)
                yield cell, orphan(self._work, cell)


def orphan(work: Work, unit: Unit) -> str:
    """Gives up a cell whose pretraining failed."""
    return work.give_up(unit, f"the pretraining of {unit.model}, seed {unit.seed} failed.")


def in_time(limit: float | None) -> bool:
    """Whether units may start."""
    return limit is None or time.monotonic() < limit
