"""Large tables, of which a step moves only the rows it reads.

A read takes the batch's distinct rows out of the table, brings them up to date, and gives them to the model as weights
of their own; the step moves those and puts them back. The cost is that of the rows read, whatever the table holds.
"""

import math
from abc import ABC, abstractmethod
from typing import Final

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim.adam import adam

from fieldwise.models.reading import Found, Places
from fieldwise.train.checkpoint import Tensors
from fieldwise.train.missed import BETA1, BETA2, EPSILON, REACH, SETTLED, Missed

CHUNK: Final = 65_536
"""Rows that are brought up to date at a time when all are."""


State = tuple[Tensor, ...]
"""Some rows up to date: their weights, then what their optimiser remembers of them."""


class Distinct:
    """The distinct numbers among rows, and the places of each; tables of one stacking ask for the same in turn."""

    def __init__(self) -> None:
        self._rows = torch.empty(0)
        self._found: tuple[Tensor, Places]

    def __call__(self, rows: Tensor, table: Tensor) -> tuple[Tensor, Places]:
        """Ascending, for rows (B, n) of a table."""
        if self._rows.shape != rows.shape or not torch.equal(self._rows, rows):
            ascending, order = _sorted(rows.flatten(), len(table))
            distinct, numbers, counts = torch.unique_consecutive(ascending, return_inverse=True, return_counts=True)
            places = Places(torch.empty_like(order).scatter_(0, order, numbers).view_as(rows), len(distinct))
            places.by_row = order, counts.cumsum(0) - counts
            self._rows, self._found = rows, (distinct.long(), places)
        return self._found


def _sorted(rows: Tensor, below: int) -> tuple[Tensor, Tensor]:
    """Rows in ascending order, and where each stood."""
    if rows.is_cuda or below > 2**16:
        return torch.sort(rows)
    order = torch.from_numpy(np.argsort(rows.numpy().astype(np.uint16), kind="stable"))  # by digits: several times quicker
    return rows[order], order


class Rows(ABC):
    """One large table in training."""

    def __init__(self, table: nn.Parameter, learning_rate: float, distinct: "Distinct") -> None:
        self._table, self._rate = table.detach(), learning_rate  # shares the table's memory
        self._distinct = distinct
        self._open: tuple[Tensor, State] | None = None

    def read(self, rows: Tensor, keep: bool) -> Found:
        """Rows (B, n) of the table as they stand now; `keep` if the step is to move them."""
        distinct, places = self._distinct(rows, self._table)
        with torch.no_grad():
            state = self._current(distinct)
        if keep:
            assert self._open is None, "a table is read once in a step"
            state[0].requires_grad_()
            self._open = distinct, state
        return Found(state[0], places, distinct)

    @torch.no_grad()
    def step(self) -> None:
        """Moves the rows last read by their gradient, and puts them back."""
        if self._open is None:
            return
        (rows, (weights, *others)), self._open = self._open, None
        grad = weights.grad
        weights = weights.detach()
        self._move((weights, *others), torch.zeros_like(weights) if grad is None else grad)
        self._put(rows, (weights, *others))

    @abstractmethod
    def settle(self) -> None:
        """Brings all rows up to date in the table itself."""

    @abstractmethod
    def _current(self, rows: Tensor) -> State:
        """Copies of some distinct rows, up to date."""

    @abstractmethod
    def _move(self, state: State, grad: Tensor) -> None:
        """One step of rows that are up to date, in place."""

    @abstractmethod
    def _put(self, rows: Tensor, state: State) -> None:
        """Puts rows back."""

    @abstractmethod
    def tensors(self) -> Tensors:
        """What a checkpoint keeps; the table itself must be settled."""

    @abstractmethod
    def restore(self, tensors: Tensors) -> None:
        """Takes a checkpoint back."""


class AdamRows(Rows):
    """Adam as if every row were moved at every step: missed steps are made up when a row is next read."""

    def __init__(self, table: nn.Parameter, learning_rate: float, distinct: Distinct) -> None:
        super().__init__(table, learning_rate, distinct)
        self._first, self._second = torch.zeros_like(self._table), torch.zeros_like(self._table)
        self._last = torch.zeros(len(table), dtype=torch.int32, device=table.device)  # 0: never moved
        self._step = 0
        self._missed = Missed()
        self._points = torch.empty(0, 4, device=table.device)

    def _current(self, rows: Tensor) -> State:
        weights, first, second, last = (
            part.index_select(0, rows) for part in (self._table, self._first, self._second, self._last)
        )
        missed = self._step - last
        points = self._present_points()[torch.where(missed < REACH, missed, REACH + last.clamp(max=SETTLED))]
        weight_a, point_a, weight_b, point_b = points.t().unsqueeze(2)  # (n, 1) each
        root = second.sqrt()
        push = weight_a / (root + EPSILON * point_a)
        push += weight_b / (root + EPSILON * point_b)
        weights.addcmul_(push, first, value=-self._rate)
        missed = missed.unsqueeze(1).to(first.dtype)
        decays = (torch.exp(missed * math.log(beta)) for beta in (BETA1, BETA2))  # quicker than powers
        return weights, first.mul_(next(decays)), second.mul_(next(decays))

    def _present_points(self) -> Tensor:
        """The two points by missed steps, then by the last step, (REACH + last steps, 4)."""
        near, far = self._missed.near(self._step), self._missed.far(self._step)
        if len(self._points) != REACH + len(far):
            self._points = torch.from_numpy(np.concatenate([near, far])).to(self._table)
        self._points[:REACH] = torch.from_numpy(near)
        return self._points

    def _move(self, state: State, grad: Tensor) -> None:
        weights, first, second = state
        done = torch.tensor(float(self._step), device=weights.device)
        adam([weights], [grad], [first], [second], [], [done], fused=True, lr=self._rate, beta1=BETA1, beta2=BETA2,
             eps=EPSILON, weight_decay=0, amsgrad=False, maximize=False)  # fmt: skip
        self._step += 1

    def _put(self, rows: Tensor, state: State) -> None:
        for whole, part in zip((self._table, self._first, self._second), state, strict=True):
            whole.index_copy_(0, rows, part)
        self._last.index_fill_(0, rows, self._step)

    @torch.no_grad()
    def settle(self) -> None:
        """Makes up all missed steps of all rows."""
        behind = ((self._last > 0) & (self._last < self._step)).nonzero().squeeze(1)
        for rows in behind.split(CHUNK):
            self._put(rows, self._current(rows))

    def tensors(self) -> Tensors:
        """Moments, and the step each row was last moved at."""
        step = torch.tensor(self._step)
        return {"first": self._first, "second": self._second, "last": self._last, "step": step}

    def restore(self, tensors: Tensors) -> None:
        """Takes a checkpoint back."""
        self._first.copy_(tensors["first"])
        self._second.copy_(tensors["second"])
        self._last.copy_(tensors["last"])
        self._step = int(tensors["step"])


class AdagradRows(Rows):
    """Row-wise Adagrad: one number for each row, the sum of its mean squared gradients."""

    def __init__(self, table: nn.Parameter, learning_rate: float, distinct: Distinct) -> None:
        super().__init__(table, learning_rate, distinct)
        self._sums = torch.zeros(len(table), device=table.device)

    def settle(self) -> None:
        """Nothing: a row that is not read does not move."""

    def _current(self, rows: Tensor) -> State:
        return self._table.index_select(0, rows), self._sums.index_select(0, rows)

    def _move(self, state: State, grad: Tensor) -> None:
        weights, sums = state
        sums += grad.square().mean(1)
        weights.addcdiv_(grad, sums.sqrt().add_(EPSILON).unsqueeze(1).expand_as(grad), value=-self._rate)

    def _put(self, rows: Tensor, state: State) -> None:
        self._table.index_copy_(0, rows, state[0])
        self._sums.index_copy_(0, rows, state[1])

    def tensors(self) -> Tensors:
        """The sums."""
        return {"sums": self._sums}

    def restore(self, tensors: Tensors) -> None:
        """Takes a checkpoint back."""
        self._sums.copy_(tensors["sums"])
