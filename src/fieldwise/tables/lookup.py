"""Rows of a table that a batch reads, and the places it reads them at."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from fieldwise.tables import deterministic_sum


@dataclass(frozen=True)
class ByRow:
    """At which places of a batch each of some rows stands."""

    order: Tensor
    """The places, counted through the batch (B n,), in the order of their rows"""
    starts: Tensor
    """(R,), where each row's begin among them"""


@dataclass(frozen=True)
class Places:
    """Which of some rows stands at each place of a batch."""

    numbers: Tensor
    """(B, n), numbers of rows"""
    by_row: ByRow | None = None
    """The other way round, where it is known"""


@dataclass(frozen=True, slots=True)
class Found:
    """What a batch reads of a table."""

    weights: Tensor
    """(R, width), rows in the table's order; more than the batch reads where they are the whole table"""
    places: Places
    rows: Tensor | None = None
    """(R,), their numbers in the table; None for all of it"""

    def at_places(self) -> Tensor:
        """The row at each place, (B, n, width)."""
        numbers = self.places.numbers
        if self.weights.is_cuda:
            if not self.weights.requires_grad:
                return functional.embedding(numbers, self.weights)
            taken: Tensor = _Take.apply(self.weights, numbers)  # type: ignore[no-untyped-call]
            return taken
        if self.places.by_row:
            found: Tensor = _Gather.apply(self.weights, self.places)  # type: ignore[no-untyped-call]
            return found
        flat = numbers.flatten().long()  # torch sums gradients by 64-bit numbers in parallel, by others one by one
        return self.weights.index_select(0, flat).view(*numbers.shape, -1)


class Distinct:
    """The distinct numbers among rows, and the places of each; tables of one stacking ask for the same in turn."""

    def __init__(self) -> None:
        self._rows = torch.empty(0)
        self._found: tuple[Tensor, Places]

    def __call__(self, rows: Tensor, below: int) -> tuple[Tensor, Places]:
        """Ascending, for rows (B, n) below a number."""
        if self._rows.shape != rows.shape or not torch.equal(self._rows, rows):
            ascending, order = _sorted(rows.flatten(), below)
            distinct, numbers, counts = torch.unique_consecutive(ascending, return_inverse=True, return_counts=True)
            numbers = torch.empty_like(order).scatter_(0, order, numbers).view_as(rows)
            places = Places(numbers, ByRow(order, counts.cumsum(0) - counts))
            self._rows, self._found = rows, (distinct.long(), places)
        return self._found

    def of(self, found: Found) -> Found:
        """Only those rows that are read."""
        if found.rows is not None:
            return found
        rows, places = self(found.places.numbers, len(found.weights))
        return Found(found.weights.index_select(0, rows), places, rows)


def _sorted(rows: Tensor, below: int) -> tuple[Tensor, Tensor]:
    """Rows in ascending order, and where each stood."""
    if rows.is_cuda or below > 2**16:
        return torch.sort(rows)
    order = torch.from_numpy(np.argsort(rows.numpy().astype(np.uint16), kind="stable"))  # by digits: 7 times as quick
    return rows.index_select(0, order), order


Reader = Callable[[nn.Parameter, Tensor], Found]
"""Finds rows of a table: weights (rows, width) and row numbers (B, n)."""


def whole_table(table: nn.Parameter, rows: Tensor) -> Found:
    """Rows of a table as they stand."""
    return Found(table, Places(rows))


def bag(weights: Tensor, places: Places) -> Tensor:
    """Sums of rows of weights (R, K), one for each row of the batch, (B, K); the places of each row must be known."""
    sums: Tensor = _Bag.apply(weights, places)  # type: ignore[no-untyped-call]
    return sums


class _Gather(torch.autograd.Function):
    """Rows at places; the gradient of a row is a sum over its places, one after the other, so that nothing collides."""

    @staticmethod
    def forward(ctx: Any, weights: Tensor, places: Places) -> Tensor:
        """(R, width) to (B, n, width)."""
        ctx.places = places
        return weights.index_select(0, places.numbers.flatten()).view(*places.numbers.shape, -1)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        """(B, n, width) to (R, width)."""
        back = ctx.places.by_row
        return functional.embedding_bag(back.order, grads[0].flatten(0, 1).contiguous(), back.starts, mode="sum"), None


class _Take(torch.autograd.Function):
    """Rows at places on a GPU, number by number: its kernels for whole rows are slow where rows are narrow."""

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


class _Bag(torch.autograd.Function):
    """Sums of rows at places."""

    @staticmethod
    def forward(ctx: Any, weights: Tensor, places: Places) -> Tensor:
        """(R, K) to (B, K)."""
        ctx.places = places
        return functional.embedding_bag(places.numbers, weights, mode="sum")

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        """(B, K) to (R, K)."""
        back = ctx.places.by_row
        batch = back.order // ctx.places.numbers.shape[1]
        return functional.embedding_bag(batch, grads[0].contiguous(), back.starts, mode="sum"), None
