"""Schedules the units of a comparison: one after another here, or in parallel processes."""

import os
import signal
import threading
import time
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import connection, get_context, parent_process
from typing import Final

from fieldwise.comparison.cells import Unit, Work
from fieldwise.core.hints import either, speak, speaks_flags

TRIES: Final = 2
"""A unit whose process died this many times fails. Units that died together run again one at a time."""
Outcome = tuple[Unit, str | None]
"""A unit, and one line if it failed, else None."""


def outcomes(work: Work, units: Sequence[Unit], jobs: int, limit: float | None) -> Generator[Outcome, None, None]:
    """Runs units in order, and yields each as it ends; none starts after `limit` (`time.monotonic`)."""
    if jobs > 1:
        with _one_thread_each():
            yield from _Crew(work, units, jobs).outcomes(limit)
        return
    lost: set[tuple[str, int]] = set()
    for unit in units:
        if not _in_time(limit):
            return
        error = _orphan(work, unit) if (unit.model, unit.seed) in lost else work.do(unit)
        if error and unit.method is None:
            lost.add((unit.model, unit.seed))
        yield unit, error


class _Crew:
    """A pool of processes. A cell waits for its pretraining, and dead processes are replaced."""

    def __init__(self, work: Work, units: Sequence[Unit], jobs: int) -> None:
        self._work, self._jobs, self._waiting = work, jobs, list(units)
        self._tries = dict.fromkeys(units, 0)
        self._running: dict[Future[str | None], Unit] = {}
        self._pool = _pool(jobs)

    def outcomes(self, limit: float | None) -> Iterator[Outcome]:
        try:
            while self._waiting or self._running:
                if not _in_time(limit):
                    self._waiting.clear()
                self._start()
                yield from self._ended()
        except BaseException:  # the same command resumes the rest
            for process in list((self._pool._processes or {}).values()):
                process.terminate()
            raise
        finally:
            self._pool.shutdown(wait=True, cancel_futures=True)

    def _start(self) -> None:
        """Submits the first units that are ready to the free processes."""
        busy = [*self._waiting, *self._running.values()]
        trained_later = {(unit.model, unit.seed) for unit in busy if unit.method is None}
        ready = [u for u in self._waiting if u.method is None or (u.model, u.seed) not in trained_later]
        room = self._jobs - len(self._running)
        suspects = [unit for unit in busy if self._tries[unit] >= TRIES or (unit in ready and self._tries[unit])]
        if suspects:  # one of the units that died together killed the pool: each runs again by itself
            ready, room = [unit for unit in suspects if unit in ready], int(not self._running)
        for unit in ready[:room]:
            self._waiting.remove(unit)
            self._tries[unit] += 1
            with _sigint_blocked():
                self._running[self._pool.submit(self._work.do, unit)] = unit

    def _ended(self) -> Iterator[Outcome]:
        """Waits until a unit ends, and yields every outcome there is then."""
        ended, _ = wait(self._running, return_when=FIRST_COMPLETED)
        if any(isinstance(future.exception(), BrokenProcessPool) for future in ended):
            yield from self._replace()
            return
        for future in ended:
            yield from self._settle(self._running.pop(future), future.result())

    def _replace(self) -> Iterator[Outcome]:
        """Starts a new pool; one dead process breaks the whole pool."""
        self._pool.shutdown(wait=True)
        self._pool = _pool(self._jobs)
        running, self._running = self._running, {}
        for future, unit in running.items():
            if future.exception() is None:
                yield from self._settle(unit, future.result())
            elif self._tries[unit] < TRIES:
                self._waiting.insert(0, unit)
            else:
                why = f"its process died, perhaps because memory ran out. Try fewer {either('--jobs', 'jobs')}."
                yield from self._settle(unit, self._work.give_up(unit, why))

    def _settle(self, unit: Unit, error: str | None) -> Iterator[Outcome]:
        yield unit, error
        if error and unit.method is None:
            for cell in [u for u in self._waiting if (u.model, u.seed) == (unit.model, unit.seed)]:
                self._waiting.remove(cell)
                yield cell, _orphan(self._work, cell)


def _orphan(work: Work, unit: Unit) -> str:
    return work.give_up(unit, f"the pretraining of {unit.model}, seed {unit.seed} failed.")


def _in_time(limit: float | None) -> bool:
    return limit is None or time.monotonic() < limit


def _pool(jobs: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(jobs, get_context("spawn"), initializer=_begin, initargs=(speaks_flags(),))


def _begin(flags: bool) -> None:
    """Prepares a process of the pool; its hints are in the language of its parent."""
    speak(flags)
    _die_with_parent()


def _die_with_parent() -> None:
    """Ends this process when its parent ends, even by SIGKILL, so that no orphan keeps running."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = parent_process()
    assert parent is not None

    def watch() -> None:
        connection.wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def _sigint_blocked() -> Iterator[None]:
    """Processes started within the block ignore Ctrl-C, which a terminal sends to all; their parent ends them."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _one_thread_each() -> Iterator[None]:
    """Processes started within the block use one thread each, since they share the cores."""
    before = os.environ.get("OMP_NUM_THREADS")
    os.environ["OMP_NUM_THREADS"] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ["OMP_NUM_THREADS"]
        else:
            os.environ["OMP_NUM_THREADS"] = before
