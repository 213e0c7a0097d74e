"""Rows of a table that a batch reads, and the places it reads them at."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional


class Places:
    """Which of some rows stands at each place of a batch, and at which places each row stands."""

    def __init__(self, numbers: Tensor, rows: int) -> None:
        self.numbers, self._rows = numbers, rows
        """Numbers of rows, (B, n)."""

    @cached_property
    def by_row(self) -> tuple[Tensor, Tensor]:
        """The places, counted through the batch, in the order of their rows; and where each row's places begin."""
        flat = self.numbers.flatten()
        counts = torch.bincount(flat, minlength=self._rows)
        return flat.argsort(), counts.cumsum(0) - counts

    @cached_property
    def batch_by_row(self) -> Tensor:
        """Which row of the batch each of those places is in."""
        return self.by_row[0] // self.numbers.shape[1]


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
        if self.weights.is_cuda:
            return functional.embedding(self.places.numbers, self.weights)
        found: Tensor = _Gather.apply(self.weights, self.places)  # type: ignore[no-untyped-call]
        return found

    def summed(self) -> Tensor:
        """The sum of the rows at the places of each row of the batch, (B, width)."""
        return bag(self.weights, self.places)


Reader = Callable[[nn.Parameter, Tensor], Found]
"""Finds rows of a table: weights (rows, width) and row numbers (B, n)."""


def read(table: nn.Parameter, rows: Tensor) -> Found:
    """Rows of a table as they stand."""
    return Found(table, Places(rows, len(table)))


def bag(weights: Tensor, places: Places) -> Tensor:
    """Sums of rows of weights (R, K), one for each row of the batch, (B, K)."""
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
        order, starts = ctx.places.by_row
        return functional.embedding_bag(order, grads[0].flatten(0, 1).contiguous(), starts, mode="sum"), None


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
        _, starts = ctx.places.by_row
        return functional.embedding_bag(ctx.places.batch_by_row, grads[0].contiguous(), starts, mode="sum"), None
