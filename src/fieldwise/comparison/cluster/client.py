"""The connection to a Dask cluster. Errors of a scheduler that does not answer become one line."""

import asyncio
import concurrent.futures
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

from distributed import Client, Future, KilledWorker, rpc
from distributed import wait as wait_for

from fieldwise.comparison.cluster.worker import Unwanted
from fieldwise.core.errors import RunError, SettingsError
from fieldwise.core.hints import either

_ANSWER: Final = 10
"""Seconds that a scheduler has to answer at first."""
_BUSY: Final = 60
"""Seconds that a scheduler has to answer later, when it may be busy."""
_CANCELLED: Final = (asyncio.CancelledError, concurrent.futures.CancelledError)


class DiedError(Exception):
    """A worker died, with what it was running."""


class Cluster:
    """The workers of a cluster, by address."""

    def __init__(self, client: Client, address: str) -> None:
        self._client, self._address = client, address
        self.most = 1
        """The largest number of units that ran at the same time."""

    def workers(self) -> set[str]:
        """The workers that the scheduler knows now."""
        with self._answering():
            # not `scheduler_info`, which may return what Dask's own periodic call fetched: no workers at all
            scheduler: Any = self._client.scheduler
            found = self._client.sync(scheduler.identity, n_workers=-1, callback_timeout=_BUSY)
        return set(found["workers"])

    def versions(self, packages: Sequence[str]) -> tuple[Mapping[str, Any], Mapping[str, Mapping[str, Any]]]:
        """The versions of packages and of Python here, and on each worker."""
        with self._answering():
            found: Any = self._client.get_versions(packages=list(packages))
        return found["client"]["packages"], {name: each["packages"] for name, each in found["workers"].items()}

    def submit(self, worker: str, function: Callable[..., Any], *arguments: Any) -> "Future[Any]":
        """Runs a function on one worker; if the worker dies, the future stays pending."""
        return self._client.submit(function, *arguments, workers=[worker], pure=False)

    def wait(self, futures: Sequence["Future[Any]"], seconds: float) -> None:
        """Waits until one of the futures ends, the time is up, or the scheduler is lost."""
        with self._answering(), suppress(TimeoutError, *_CANCELLED), self._client.as_current():
            wait_for(futures, timeout=seconds, return_when="FIRST_COMPLETED")

    def result(self, future: "Future[Any]") -> Any:
        """The value of a future that ended; raises the error of its function, or `DiedError`."""
        try:
            return future.result(timeout=_BUSY)
        except (KilledWorker, TimeoutError, Unwanted, *_CANCELLED) as error:
            raise DiedError from error

    def cancel(self, futures: Sequence["Future[Any]"]) -> None:
        """Tells workers that nobody waits for these futures; a scheduler that is gone has done so."""
        with suppress(OSError, TimeoutError):
            self._client.cancel(list(futures), force=True)

    @contextmanager
    def _answering(self) -> Iterator[None]:
        try:
            yield
        except (OSError, TimeoutError, RuntimeError) as error:
            raise self.lost(error) from error

    def lost(self, error: BaseException | str) -> RunError:
        """The error of a scheduler that was there."""
        return RunError(
            f"The scheduler at '{self._address}' no longer answers ({' '.join(str(error).split())}). Start it and its "
            "workers again, and run the same command again: complete cells are skipped."
        )


@contextmanager
def joined(address: str) -> Iterator[Cluster]:
    """A connection to the scheduler at an address, such as tcp://host:8786."""
    what = either(f"--cluster {address}", f"cluster={address!r}")
    try:
        with concurrent.futures.ThreadPoolExecutor(1) as thread:  # a notebook runs an event loop in this one
            kind = thread.submit(asyncio.run, _kind(address)).result()
        if kind != "Scheduler":
            raise OSError(f"a Dask {kind.lower()}")
        client = Client(address, timeout=_ANSWER, set_as_default=False)
    except Exception as error:
        why = "no answer" if isinstance(error, TimeoutError) else " ".join(str(error).split()) or repr(error)
        raise SettingsError(
            f"{what}: no Dask scheduler answers there ({why}). Start one with `dask scheduler`, which prints its "
            "address, such as tcp://host:8786."
        ) from None
    with _quiet():
        try:
            yield Cluster(client, address)
        finally:
            with suppress(OSError, TimeoutError):
                client.close(timeout=_ANSWER)


@contextmanager
def _quiet() -> Iterator[None]:
    """Turns off Dask's log, since errors say what happened."""
    logs = [logging.getLogger(name) for name in ("distributed", "distributed.client")]  # both have levels of their own
    before = [log.level for log in logs]
    for log in logs:
        log.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for log, level in zip(logs, before, strict=True):
            log.setLevel(level)


async def _kind(address: str) -> str:
    """What answers at an address; Dask's own connection has no time limit once it is open."""
    async with asyncio.timeout(_ANSWER):
        async with rpc(address, timeout=_ANSWER) as remote:
            return str((await remote.identity())["type"])
