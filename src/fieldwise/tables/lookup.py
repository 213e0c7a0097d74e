"""The rows of a table that a batch reads, and the places where it reads them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from fieldwise.kernels.available import has_kernels
from fieldwise.tables import deterministic_sum


@dataclass(frozen=True)
class ByRow:
    """The places of a batch that contain each row: the inverse of `Places`."""

    order: Tensor
    """Flat indices of places, (B n,), sorted by row"""
    starts: Tensor
    """First entry of each row in `order`, (R,)"""


@dataclass(frozen=True)
class Places:
    """The row at each place of a batch."""

    numbers: Tensor
    """Row numbers, (B, n)"""
    by_row: ByRow | None = None
    """The inverse, if known"""


@dataclass(frozen=True, slots=True)
class Found:
    """The rows that a batch reads from a table."""

    weights: Tensor
    """Rows in the table's order, (R, width): the distinct rows that are read, or the whole table"""
    places: Places
    rows: Tensor | None = None
    """Their row numbers in the table, (R,); None for the whole table"""
    sink: Callable[[Tensor], None] | None = None
    """Takes the gradient at places, (B, n, width), or (B, width) if all places of a row of the batch have the same, for
    an optimizer that needs none of the table"""

    def at_places(self) -> Tensor:
        """The row at each place, (B, n, width)."""
        numbers = self.places.numbers
        if has_kernels(self.weights.device):
            got: Tensor = _Read.apply(self.weights, numbers, self.sink)  # type: ignore[no-untyped-call]
            return got
        if self.weights.is_cuda:
            if not self.weights.requires_grad:
                return functional.embedding(numbers, self.weights)
            taken: Tensor = _Take.apply(self.weights, numbers)  # type: ignore[no-untyped-call]
            return taken
        if self.places.by_row:
            found: Tensor = _Gather.apply(self.weights, self.places)  # type: ignore[no-untyped-call]
            return found
        flat = numbers.flatten().long()  # torch sums gradients in parallel only for 64-bit indices
        return self.weights.index_select(0, flat).view(*numbers.shape, self.weights.shape[1])


class Distinct:
    """Finds distinct rows and their places. Caches the last result, because stacked tables ask for the same rows."""

    def __init__(self) -> None:
        self._rows = torch.empty(0)
        self._found: tuple[Tensor, Places]

    def __call__(self, rows: Tensor, below: int) -> tuple[Tensor, Places]:
        """Distinct rows in ascending order, and the places of rows (B, n), all less than `below`."""
        if self._rows.shape != rows.shape or not torch.equal(self._rows, rows):
            ascending, order = _sorted(rows.flatten(), below)
            distinct, numbers, counts = torch.unique_consecutive(ascending, return_inverse=True, return_counts=True)
            numbers = torch.empty_like(order).scatter_(0, order, numbers).view_as(rows)
            places = Places(numbers, ByRow(order, counts.cumsum(0) - counts))
            self._rows, self._found = rows, (distinct.long(), places)
        return self._found

    def of(self, found: Found) -> Found:
        """Only the rows that are read."""
        if found.rows is not None:
            return found
        rows, places = self(found.places.numbers, len(found.weights))
        return Found(found.weights.index_select(0, rows), places, rows)


def _sorted(rows: Tensor, below: int) -> tuple[Tensor, Tensor]:
    """Rows in ascending order, and the permutation that sorts them."""
    if rows.is_cuda or below > 2**16:
        return torch.sort(rows)
    order = torch.from_numpy(np.argsort(rows.numpy().astype(np.uint16), kind="stable"))  # radix sort: 7 times faster
    return rows.index_select(0, order), order


Reader = Callable[[nn.Parameter, Tensor], Found]
"""Reads rows of a table: weights (rows, width) at row numbers (B, n)."""


class Rounding(Protocol):
    """Rounds rows of the tables of an embedding as they will be stored."""

    def __call__(self, found: Found, width: int) -> Found:
        """The same rows of the table of one width, rounded."""

    def of_all(self, weights: Tensor) -> Tensor:
        """The numbers of all tables, one after the other, rounded."""


def whole_table(table: nn.Parameter, rows: Tensor) -> Found:
    """A lookup in the table itself."""
    return Found(table, Places(rows))


def bag(weights: Tensor, places: Places, counts: Tensor | None = None) -> Tensor:
    """Sums of rows of weights (R, K), one per row of the batch, (B, K); `places.by_row` must be known.

    `counts` (B, n) is how often the row at each place counts, 1 if not given.
    """
    sums: Tensor = _Bag.apply(weights, places, counts)  # type: ignore[no-untyped-call]
    return sums


class _Gather(torch.autograd.Function):
    """Gather of rows on a CPU. The backward pass sums per row over its places, so that threads do not conflict."""

    @staticmethod
    def forward(ctx: Any, weights: Tensor, places: Places) -> Tensor:
        """(R, width) to (B, n, width)."""
        ctx.places = places
        return weights.index_select(0, places.numbers.flatten()).view(*places.numbers.shape, weights.shape[1])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        """(B, n, width) to (R, width)."""
        back = ctx.places.by_row
        return functional.embedding_bag(back.order, grads[0].flatten(0, 1).contiguous(), back.starts, mode="sum"), None


class _Take(torch.autograd.Function):
    """Gather of rows on a GPU, element by element: the row kernels are slow for narrow rows."""

    @staticmethod
    def forward(ctx: Any, weights: Tensor, numbers: Tensor) -> Tensor:
        """(R, width) to (B, n, width)."""
        count, width = weights.shape
        ctx.save_for_backward(numbers)
        ctx.count = count
        columns = torch.arange(width, device=weights.device)
        return weights.take(numbers.long().unsqueeze(2) * width + columns)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        """(B, n, width) to (R, width)."""
        (numbers,) = ctx.saved_tensors
        return deterministic_sum.sums(grads[0].flatten(0, 1), numbers.flatten(), ctx.count), None


class _Read(torch.autograd.Function):
    """Gather of rows by a kernel. The gradient goes to the sink if there is one, else to the table."""

    @staticmethod
    def forward(ctx: Any, weights: Tensor, numbers: Tensor, sink: Callable[[Tensor], None] | None) -> Tensor:
        """(R, width) to (B, n, width)."""
        from fieldwise.kernels import tables

        ctx.save_for_backward(numbers)
        ctx.count, ctx.sink = len(weights), sink
        return tables.gather(weights, numbers)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, None, None]:
        """(B, n, width) to (R, width)."""
        (numbers,) = ctx.saved_tensors
        if ctx.sink:
            ctx.sink(grads[0])
            return None, None, None
        return deterministic_sum.sums(grads[0].flatten(0, 1), numbers.flatten(), ctx.count), None, None


class _Bag(torch.autograd.Function):
    """Sums of the rows at each row of a batch."""

    @staticmethod
    def forward(ctx: Any, weights: Tensor, places: Places, counts: Tensor | None) -> Tensor:
        """(R, K) to (B, K)."""
        ctx.places, ctx.counts = places, counts
        return functional.embedding_bag(places.numbers, weights, mode="sum", per_sample_weights=counts)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        """(B, K) to (R, K)."""
        back = ctx.places.by_row
        batch = back.order // ctx.places.numbers.shape[1]
        counts = None if ctx.counts is None else ctx.counts.flatten().index_select(0, back.order)
        grad = grads[0].contiguous()
        return functional.embedding_bag(batch, grad, back.starts, mode="sum", per_sample_weights=counts), None, None
