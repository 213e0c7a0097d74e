"""Batches sliced from the arrays of a split: rows are gathered by index, never collated one by one."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fieldwise.data.joined import JoinedIds
from fieldwise.data.sharded import ShardedArray
from fieldwise.data.store import Split
from fieldwise.processes.ranks import current
from fieldwise.processes.streams import shared

CHUNK: Final = 2**20
"""Rows that are copied to a GPU at once."""
RESIDENT_FRACTION: Final = 0.5
"""Largest fraction of the free GPU memory that a split on the GPU may take."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Encoded rows on the training device."""

    ids: Tensor
    """(B, places), int32: one id per field, more for multi-valued fields."""
    labels: Tensor
    """(B,), float32."""
    total: int | None = None
    """Rows of this batch in all processes; None: these are all."""

    @property
    def rows(self) -> int:
        """Rows of this batch in all processes."""
        return len(self.labels) if self.total is None else self.total

    @property
    def is_whole(self) -> bool:
        """Whether this process has all rows of the batch, as then every process has."""
        return self.rows == len(self.labels)


class Batches:
    """A split as tensors: on the device if it fits, else memory-mapped and copied batch by batch."""

    def __init__(self, split: Split, device: torch.device) -> None:
        self._device = device
        home = device if device.type != "cuda" or _fits(split, device) else torch.device("cpu")
        self._ids = _whole(split.ids, home)
        self._labels = torch.from_numpy(split.labels).to(home, torch.float32 if home.type == "cuda" else None)

    def __len__(self) -> int:
        return len(self._labels)

    def shuffled(self, size: int, order: Tensor | None = None) -> Iterator[Batch]:
        """Yields batches in random order, drawn from torch's global generator if not given; the last may be smaller.

        Each of several processes gets its part of every batch, or all of a batch with fewer rows than processes.
        """
        ranks = current()
        if order is None:
            with shared():
                order = torch.randperm(len(self))
        for index in order.to(self._labels.device).split(size):
            total, own = len(index), ranks.own(range(len(index)))
            if total >= ranks.size:
                index = index[own.start : own.stop]
            yield self._batch(self._taken(index), self._labels.index_select(0, index), total)

    def endless(self, size: int, orders: Tensor | None = None) -> Iterator[Batch]:
        """Yields shuffled batches forever, reshuffling every epoch; in these orders (n, rows) first, if given."""
        for order in () if orders is None else orders.to(self._labels.device):
            yield from self.shuffled(size, order)
        while True:
            yield from self.shuffled(size)

    def ordered(self, size: int) -> Iterator[Batch]:
        """Yields batches in the order of the split; each of several processes gets some of them, in its order.

        If processes read rows of tables from each other, all get the same number of batches; the last may be empty.
        """
        ranks, starts = current(), range(0, len(self), size)
        own = ranks.own(starts)
        for start in own:
            yield self._slice(start, start + size)
        if ranks.split_from is not None:
            for _ in range(-(-len(starts) // ranks.size) - len(own)):
                yield self._slice(0, 0)

    def first(self) -> Batch:
        """The first row."""
        return self._slice(0, 1)

    def _slice(self, start: int, end: int) -> Batch:
        ids = self._ids[start:end]
        return self._batch(ids if isinstance(ids, Tensor) else torch.from_numpy(ids), self._labels[start:end])

    def _taken(self, index: Tensor) -> Tensor:
        if isinstance(self._ids, Tensor):
            return self._ids.index_select(0, index)
        return torch.from_numpy(self._ids[index.numpy()])

    def _batch(self, ids: Tensor, labels: Tensor, total: int | None = None) -> Batch:
        return Batch(ids.to(self._device, non_blocking=True), labels.to(self._device, torch.float32), total)


def _whole(ids: NDArray[np.int32] | ShardedArray | JoinedIds, home: torch.device) -> Tensor | ShardedArray | JoinedIds:
    """Returns ids as one tensor; what is not one array stays so in the main memory, where a tensor would be a copy."""
    if isinstance(ids, np.ndarray):
        return torch.from_numpy(ids).to(home)
    if home.type == "cpu":
        return ids
    found = torch.empty(ids.shape, dtype=torch.int32, device=home)
    for start, part in zip(range(0, len(ids), CHUNK), found.split(CHUNK), strict=True):
        part.copy_(torch.from_numpy(ids[start : start + CHUNK]))
    return found


def _fits(split: Split, device: torch.device) -> bool:
    free, _ = torch.cuda.mem_get_info(device)
    return split.ids.nbytes + split.labels.nbytes < RESIDENT_FRACTION * free
