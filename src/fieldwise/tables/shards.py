"""Stacked tables whose rows are split over the processes: each holds a block of the ids of every field."""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor

from fieldwise.processes.ranks import Ranks, current
from fieldwise.tables.lookup import Distinct, Found

if TYPE_CHECKING:
    from fieldwise.tables.torchrec_rows import TorchRecRows

CHUNK: Final = 2**16
"""Rows that are drawn or sent at a time. Chunks of a multiple of 16 numbers draw what one draw of all would."""
_DISTINCT: Final = Distinct()
"""Shared, because embeddings and first-order weights ask for the same rows."""


class Shards:
    """The rows of a stacked table that this process holds. Block r of each field's ids is with process r.

    Every process must read at the same time: TorchRec moves rows and their gradients between all of them.
    """

    def __init__(self, cardinalities: Sequence[int], width: int) -> None:
        self.cardinalities, self.width, self._ranks = tuple(cardinalities), width, current()
        self.blocks = tuple(block(count, self._ranks) for count in cardinalities)
        """The ids of each field that this process holds."""
        ends = [0, *accumulate(len(own) for own in self.blocks)]
        self.spans = tuple(slice(start, start + len(own)) for start, own in zip(ends, self.blocks, strict=False))
        """The rows of each field in this process's part of the stacked table."""
        self.rows = ends[-1]
        self._starts = torch.tensor([0, *accumulate(cardinalities)], device="cpu")

    def __deepcopy__(self, memo: dict[int, Any]) -> "Shards":
        return self

    @property
    def apart(self) -> bool:
        """Whether other processes hold rows; one process holds them all."""
        return self._ranks.size > 1

    @cached_property
    def _moved(self) -> "TorchRecRows":
        from fieldwise.tables.torchrec_rows import TorchRecRows

        return TorchRecRows(self.cardinalities, self.width, self._ranks)

    def read(self, rows: Tensor, lookup: Callable[[Tensor], Found]) -> Found:
        """Rows of the stacked table of all processes, at row numbers (B, n); `lookup` reads this process's own."""
        assert not current().only, "the other processes wait, and cannot send their rows"
        distinct, places = _DISTINCT(rows, int(self._starts[-1]))
        counts = torch.searchsorted(distinct, self._starts).diff()
        ids = distinct - self._starts[:-1].repeat_interleave(counts)
        weights = self._moved(ids, counts, lambda own: lookup(own.unsqueeze(1)).at_places().squeeze(1))
        if weights.requires_grad and current().size == 1:  # every process takes the same step, and sends its gradient
            weights.register_hook(lambda grad: grad / self._ranks.size)
        return Found(weights, places, distinct)

    def drawn(self, found: Tensor, init: float, zeros: Tensor) -> Tensor:
        """Fills this process's rows of a new table with the numbers of one drawn as a whole; rows at `zeros` are 0."""
        own = self._own_rows()
        for start, chunk in _drawn(int(self._starts[-1]), self.width):
            chunk *= init
            chunk[zeros[(zeros >= start) & (zeros < start + len(chunk))] - start] = 0
            for here, there in own:
                first, last = max(there.start, start), min(there.stop, start + len(chunk))
                if first < last:
                    place = here.start + first - there.start
                    found[place : place + last - first] = chunk[first - start : last - start]
        return found

    def _own_rows(self) -> list[tuple[slice, range]]:
        """This process's rows of each field: here, and in the whole table."""
        starts = self._starts.tolist()
        return [
            (span, range(start + own.start, start + own.stop))
            for span, own, start in zip(self.spans, self.blocks, starts, strict=False)
        ]

    def chunks(self, place: int, part: Tensor) -> Iterator[tuple[int, Tensor]]:
        """Rows of one field's table from all processes, (first id, rows); `part` has those of this process."""
        size, ranks = math.ceil(self.cardinalities[place] / self._ranks.size), self._ranks
        for start in range(0, size, CHUNK):
            each = ranks.rows(part[start : start + CHUNK])
            for rank in range(ranks.size):
                own = block(self.cardinalities[place], ranks, rank)
                count = max(0, min(CHUNK, len(own) - start))
                yield own.start + start, each[:count]
                each = each[count:]

    def whole(self, place: int, part: Tensor) -> Tensor:
        """One field's table, or columns of it, from all processes."""
        found = part.new_empty(self.cardinalities[place], *part.shape[1:])
        for start, rows in self.chunks(place, part):
            found[start : start + len(rows)] = rows
        return found

    def total(self, part: Tensor) -> Tensor:
        """The sum of a tensor over the processes that hold rows."""
        return self._ranks.total(part)


def block(count: int, ranks: Ranks, rank: int | None = None) -> range:
    """The ids of a field that a process holds, this one by default; the last processes may hold fewer, or none."""
    size, number = math.ceil(count / ranks.size), ranks.rank if rank is None else rank
    return range(min(count, size * number), min(count, size * (number + 1)))


def shards_of(embedding: object, field: int) -> tuple[Shards, int] | None:
    """How one field's table of any embedding is split over processes, and its place in the shards, if it is."""
    found: tuple[Shards, int] | None = getattr(embedding, "shards_of", lambda _: None)(field)
    return found


def _drawn(rows: int, width: int) -> Iterator[tuple[int, Tensor]]:
    """Chunks (first row, numbers) of a table from a normal distribution."""
    start = 0
    while start < rows:
        count = CHUNK if rows - start > CHUNK + 16 else rows - start  # torch draws fewer than 16 numbers otherwise
        yield start, torch.empty(count, width).normal_()
        start += count
