"""A pool of processes on this machine."""

import os
import signal
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from multiprocessing import connection, get_context, parent_process

from fieldwise.comparison.cells import Unit, Work
from fieldwise.comparison.crew import Crew, Outcome
from fieldwise.core.errors import RunError
from fieldwise.core.hints import either, speak, speaks_flags
from fieldwise.core.lock import exclusive


class Pool(Crew):
    """Processes of this machine. Units that died together run again one at a time."""

    tries = 2

    def __init__(self, work: Work, units: Sequence[Unit], jobs: int) -> None:
        super().__init__(work, units)
        self._jobs = jobs
        self._futures: dict[Future[str | None], Unit] = {}
        self._pool = _pool(jobs)

    def _running(self) -> Sequence[Unit]:
        return list(self._futures.values())

    def _start(self) -> None:
        """Submits the first units that are ready to the free processes."""
        ready, room = self._ready(), self._jobs - len(self._futures)
        busy = [*self._waiting, *self._running()]
        suspects = [unit for unit in busy if self._tries[unit] >= self.tries or (unit in ready and self._tries[unit])]
        if suspects:  # one of the units that died together killed the pool: each runs again by itself
            ready, room = [unit for unit in suspects if unit in ready], int(not self._futures)
        for unit in ready[:room]:
            self._take(unit)
            with _sigint_blocked():
                self._futures[self._pool.submit(self._work.do, unit)] = unit

    def _ended(self) -> Iterator[Outcome]:
        """Waits until a unit ends, and yields every outcome there is then."""
        ended, _ = wait(self._futures, return_when=FIRST_COMPLETED)
        if any(isinstance(future.exception(), BrokenProcessPool) for future in ended):
            yield from self._replace()
            return
        for future in ended:
            yield from self._settle(self._futures.pop(future), future.result())

    def _replace(self) -> Iterator[Outcome]:
        """Starts a new pool; one dead process breaks the whole pool."""
        self._pool.shutdown(wait=True)
        self._pool = _pool(self._jobs)
        running, self._futures = self._futures, {}
        for future, unit in running.items():
            if future.exception() is None:
                yield from self._settle(unit, future.result())
            else:
                why = f"its process died, perhaps because memory ran out. Try fewer {either('--jobs', 'jobs')}."
                yield from self._died(unit, why)

    def _close(self) -> None:
        for process in list((self._pool._processes or {}).values()) if self._futures else ():
            process.terminate()
        self._pool.shutdown(wait=True, cancel_futures=True)
        for unit in self._running():
            with suppress(RunError), exclusive(unit.folder(self._work.settings, self._work.out)):
                pass  # removes the lock files that an ended process leaves behind


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
def one_thread_each() -> Iterator[None]:
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
