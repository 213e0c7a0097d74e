"""What the processes of a training tell each other. With one process, nothing moves and nothing changes."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from itertools import count
from typing import Any, Final, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import Store

from fieldwise.core.errors import ElsewhereError, RunError, SettingsError
from fieldwise.core.settings import differing
from fieldwise.processes.failures import is_of_connection, reason

T = TypeVar("T")
FAILED: Final = "failed"
"""Counts the processes that failed; the first of them reports its error."""
LARGE: Final = 2**20
"""Tensors with more numbers are summed where they are, smaller ones in one message."""
_BEAT: Final = 2.0
"""Most seconds between two signs of life of the first process, while the others wait for it."""


class Ranks:
    """One process, which is also what one of several is while it works for all."""

    rank: int = 0
    """The number of this process, from 0."""
    size: int = 1
    """The number of processes."""
    split_from: int | None = None
    """Rows from which stacked tables are split over the processes; None: no table is."""
    only: bool = False
    """Whether the other processes wait for this one."""

    def add(self, tensors: Sequence[Tensor]) -> None:
        """Replaces each tensor by its sum over all processes."""

    def total(self, tensor: Tensor) -> Tensor:
        """The sum of a tensor over all processes."""
        return tensor

    def stacked(self, tensor: Tensor) -> Tensor:
        """The tensors of all processes, (size, ...); all have the same shape."""
        return tensor.unsqueeze(0)

    def rows(self, tensor: Tensor) -> Tensor:
        """The rows of all processes in their order; each may have another number of rows."""
        return tensor

    def from_first(self, work: Callable[[], T]) -> T:
        """What `work` returns in the first process; the others do not call it, and wait for as long as it works."""
        return work()

    def check_same(self, what: str, values: Mapping[str, Any]) -> None:
        """Refuses processes that have been given other values than the first."""

    @contextmanager
    def talking(self, by: str = "") -> Iterator[None]:
        """A context for messages to other processes, of which there are none."""
        yield

    def own(self, places: range) -> range:
        """The part of some places that this process works on, in order."""
        return places[len(places) * self.rank // self.size : len(places) * (self.rank + 1) // self.size]


_current: Ranks = Ranks()


def current() -> Ranks:
    """The processes that train together; one, unless they were joined."""
    return _current


@contextmanager
def acting(ranks: Ranks) -> Iterator[None]:
    """A context in which `current` returns these."""
    global _current
    before, _current = _current, ranks
    try:
        yield
    finally:
        _current = before


@contextmanager
def splitting(rows: int | None) -> Iterator[None]:
    """A context in which new stacked tables with this many rows or more are split over the processes."""
    ranks = _current
    before, ranks.split_from = ranks.split_from, rows
    try:
        yield
    finally:
        ranks.split_from = before


class _Only(Ranks):
    """One process that works while the others wait."""

    only = True


class Group(Ranks):
    """Several processes, connected by torch's default process group and by a store of small values."""

    def __init__(self, rank: int, size: int, store: Store, timeout: float) -> None:
        """`timeout`: seconds without an answer after which a process is given up."""
        self.rank, self.size, self._store, self._timeout = rank, size, store, timeout
        self._beat, self._calls = min(_BEAT, timeout / 4), count()

    def add(self, tensors: Sequence[Tensor]) -> None:
        """Replaces each tensor by its sum over all processes."""
        small = [tensor for tensor in tensors if tensor.numel() <= LARGE]
        with self.talking():
            for tensor in tensors:
                if tensor.numel() > LARGE:
                    dist.all_reduce(tensor)
            if small:
                flat = torch.cat([tensor.flatten() for tensor in small])
                dist.all_reduce(flat)
                for tensor, part in zip(small, flat.split([t.numel() for t in small]), strict=True):
                    tensor.copy_(part.view_as(tensor))

    def total(self, tensor: Tensor) -> Tensor:
        """The sum of a tensor over all processes."""
        found = tensor.detach().clone()
        self.add([found])
        return found

    def stacked(self, tensor: Tensor) -> Tensor:
        """The tensors of all processes, (size, ...); all have the same shape."""
        parts = [torch.empty_like(tensor) for _ in range(self.size)]
        with self.talking():
            dist.all_gather(parts, tensor)
        return torch.stack(parts)

    def rows(self, tensor: Tensor) -> Tensor:
        """The rows of all processes in their order; each may have another number of rows."""
        counts = self.stacked(torch.tensor(len(tensor), device=tensor.device)).tolist()
        padded = tensor.new_zeros(max(counts), *tensor.shape[1:])
        padded[: len(tensor)] = tensor
        return torch.cat([part[:count] for part, count in zip(self.stacked(padded), counts, strict=True)])

    def from_first(self, work: Callable[[], T]) -> T:
        """What `work` returns in the first process; the others do not call it, and wait for as long as it works."""
        key = f"work-{next(self._calls)}"
        found: list[Any] = [None]
        if self.rank == 0:
            try:
                with acting(_Only()), self._beating(key):
                    found = [work()]
            except BaseException:
                with suppress(RuntimeError):
                    self._store.set(key, "failed")
                raise
            with self.talking():
                self._store.set(key, "done")
        elif self._wait(key) != b"done":
            raise ElsewhereError("The first process failed. Its message says why.")
        with self.talking():
            dist.broadcast_object_list(found, device=torch.device("cpu"))
        return found[0]  # type: ignore[no-any-return]

    @contextmanager
    def _beating(self, key: str) -> Iterator[None]:
        """Gives signs of life while the block runs."""
        ended = threading.Event()

        def beat() -> None:
            while not ended.wait(self._beat):
                with suppress(RuntimeError):
                    self._store.add(f"{key}-alive", 1)

        thread = threading.Thread(target=beat, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def _wait(self, key: str) -> bytes:
        """The value of a key that the first process sets; raises if it gives no sign of life."""
        alive, heard = 0, time.monotonic()
        while True:
            with suppress(RuntimeError):
                self._store.wait([key], timedelta(seconds=self._beat))
                return bytes(self._store.get(key))
            if self.has_failed():
                raise ElsewhereError("Another process failed. Its message says why.")
            with self.talking():
                now = self._store.add(f"{key}-alive", 0)
            if now != alive:
                alive, heard = now, time.monotonic()
            elif time.monotonic() - heard > self._timeout:
                raise self._lost(f"no sign of life of the first process for {self._timeout:g} seconds")

    def check_same(self, what: str, values: Mapping[str, Any]) -> None:
        """Refuses processes that have been given other values than the first."""
        each: list[Any] = [None] * self.size
        with self.talking():
            dist.all_gather_object(each, dict(values))
        for rank, other in enumerate(each):
            changed = differing(each[0], other)
            if changed:
                raise SettingsError(
                    f"Process {rank} of {self.size} has other {what} than process 0: {'; '.join(changed)}. All must be "
                    "equal. Give every process the same file and flags."
                )

    @contextmanager
    def talking(self, by: str = "") -> Iterator[None]:
        """Turns a failure of a connection into an error of a run; `by` names a library that may fail otherwise."""
        try:
            yield
        except (RuntimeError, OSError, EOFError) as error:
            if by and not is_of_connection(error):
                raise RunError(
                    f"{by} failed, and no connection: {type(error).__name__}, {reason(error)}. Install the version of "
                    f"{by} that the documentation names, or run without it."
                ) from error
            raise self._lost(reason(error)) from error

    def _lost(self, why: str) -> RunError | ElsewhereError:
        if self.has_failed():
            return ElsewhereError("Another process failed. Its message says why.")
        return RunError(
            f"A process of this run ended, or does not answer ({why}). All {self.size} must run. Run the same command "
            "again to resume from the last complete epoch."
        )

    def has_failed(self) -> bool:
        """Whether a process has failed, which then says why."""
        with suppress(RuntimeError):
            return bool(self._store.add(FAILED, 0))
        return False

    def is_first_to_fail(self) -> bool:
        """Notes that this process failed; returns whether it is the first to."""
        try:
            return bool(self._store.add(FAILED, 1) == 1)
        except RuntimeError:  # the store ended with its process
            return self.rank == 0
