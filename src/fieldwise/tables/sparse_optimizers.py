"""Optimizers for large tables that update only the rows that a step reads.

A read gathers the batch's distinct rows from the table, brings them up to date, and passes them to the model as
separate weights; the step updates these and scatters them back. The cost depends on the rows read, not on the table.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim.adam import adam

from fieldwise.processes.ranks import current
from fieldwise.tables import deterministic_sum
from fieldwise.tables.adam_catchup import BETA1, BETA2, EPSILON, REACH, SETTLED, Missed
from fieldwise.tables.lookup import Distinct, Found
from fieldwise.tables.rate import Rate
from fieldwise.tables.state import Tensors

CHUNK: Final = {"cpu": 2**14, "cuda": 2**20}
"""Rows per chunk when many are brought up to date; on a CPU a chunk fits into its cache."""
EVERY: Final = slice(None)

State = tuple[Tensor, ...]
"""Up-to-date rows: their weights, then their optimizer state."""


@dataclass(frozen=True)
class _Open:
    """Rows read since the last step."""

    rows: Tensor
    keep: bool
    states: list[State]


class SparseOptimizer(ABC):
    """Large tables that stack the same fields: row i of each belongs to the same id."""

    split = False
    """Whether other processes hold other rows of the tables; gradients then come to the process that holds the row."""

    def __init__(self, tables: Sequence[nn.Parameter], rate: Rate, distinct: Distinct) -> None:
        self._tables, self._rate = [table.detach() for table in tables], rate  # shares memory with the tables
        self._distinct = distinct
        self._step = 0
        self._open: _Open | None = None

    def read(self, rows: Tensor, keep: bool, table: int = 0) -> Found:
        """Up-to-date rows (B, n) of one of the tables; with `keep`, the next step updates them."""
        distinct, places = self._distinct(rows, len(self._tables[0]))
        known = self._open
        if known is None or known.keep != keep or not torch.equal(known.rows, distinct):
            assert known is None or not known.keep, "one batch per step"
            with torch.no_grad():
                known = self._open = _Open(distinct, keep, self._current(distinct))
        weights = known.states[table][0]
        return Found(weights.requires_grad_(keep), places, distinct)

    @torch.no_grad()
    def step(self) -> None:
        """Update the rows last read by their gradient, and write them back."""
        known, self._open = self._open, None
        if known is None or not known.keep:
            return
        grads = [
            weights.new_zeros(weights.shape) if weights.grad is None else weights.grad for weights, *_ in known.states
        ]
        rows, states = known.rows, [(weights.detach(), *others) for weights, *others in known.states]
        if current().size > 1 and not self.split:
            rows, grads = _of_all_ranks(rows, grads)
            states = self._current(rows)
        self._step += 1
        for state, grad in zip(states, grads, strict=True):
            self._move(state, grad)
        self._put(rows, states)

    @property
    def _present_rate(self) -> float:
        """The rate of the step that is being taken."""
        return self._rate.at(self._step - 1)

    @abstractmethod
    def settle(self, rows: slice = EVERY) -> None:
        """Bring rows up to date in the tables themselves: some between two steps, or all at the end."""

    @abstractmethod
    def _current(self, rows: Tensor) -> list[State]:
        """Up-to-date copies of distinct rows of each table."""

    @abstractmethod
    def _move(self, state: State, grad: Tensor) -> None:
        """One step on up-to-date rows, in place."""

    @abstractmethod
    def _put(self, rows: Tensor, states: list[State]) -> None:
        """Write updated rows back to each table."""

    @abstractmethod
    def tensors(self) -> Tensors:
        """State for a checkpoint; the tables must be settled before."""

    @abstractmethod
    def restore(self, tensors: Tensors) -> None:
        """Restore a checkpoint."""


def _of_all_ranks(rows: Tensor, grads: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
    """The distinct rows that any process read, and the sums of their gradients over all processes."""
    numbers = rows.int().view(torch.float32).unsqueeze(1)  # their bits: one message takes less time than two
    first, *every = current().rows(torch.cat([numbers, *grads], 1)).split([1, *(grad.shape[1] for grad in grads)], 1)
    distinct, places = torch.unique(first.contiguous().view(torch.int32).flatten().long(), return_inverse=True)
    if rows.is_cuda:
        return distinct, [deterministic_sum.sums(grad, places, len(distinct)) for grad in every]
    return distinct, [grad.new_zeros(len(distinct), grad.shape[1]).index_add_(0, places, grad) for grad in every]


class SparseAdam(SparseOptimizer):
    """Adam with the updates of dense Adam: a row catches up on missed steps when it is next read."""

    def __init__(self, tables: Sequence[nn.Parameter], rate: Rate, distinct: Distinct) -> None:
        super().__init__(tables, rate, distinct)
        rows, device = len(tables[0]), tables[0].device
        self._moments = [(torch.zeros_like(table), torch.zeros_like(table)) for table in self._tables]
        self._last = torch.zeros(rows, dtype=torch.int32, device=device)  # 0: never updated
        self._missed = Missed()
        self._points, self._points_of = torch.empty(0, 4, device=device), -1

    def _current(self, rows: Tensor) -> list[State]:
        states = [
            tuple(part.index_select(0, rows) for part in (table, *moments))
            for table, moments in zip(self._tables, self._moments, strict=True)
        ]
        self._catch_up(self._last.index_select(0, rows), states)
        return states

    def _catch_up(self, last: Tensor, states: Sequence[State]) -> None:
        """Apply the steps that rows missed since their last update, in place."""
        missed = self._step - last
        places = torch.where(missed < REACH, missed, REACH + last.clamp(max=SETTLED))
        weight_a, point_a, weight_b, point_b = self._present_points().index_select(0, places).t().unsqueeze(2)  # (n, 1)
        rates, top = (None, self._rate.top) if self._rate.steps is None else (self._mean_rates(last, missed), 1.0)
        missed = missed.unsqueeze(1).float()
        decay_first, decay_second = (torch.exp(missed * math.log(beta)) for beta in (BETA1, BETA2))  # faster than pow
        for weights, first, second in states:
            root = second.sqrt()
            push = weight_a / (root + EPSILON * point_a)
            push += weight_b / (root + EPSILON * point_b)
            weights.addcmul_(push * rates if rates is not None else push, first, value=-top)
            first.mul_(decay_first)
            second.mul_(decay_second)

    def _mean_rates(self, last: Tensor, missed: Tensor) -> Tensor:
        """Mean rate (n, 1) of the steps that each row missed, which push it by falling powers of the first beta."""
        count = missed.clamp(min=1).double()
        power = BETA1**count
        mean = 1 / (1 - BETA1) - count * power / (1 - power)  # of a geometric distribution, cut after `count`
        return self._rate.of(last + mean - 1).float().unsqueeze(1)

    def _present_points(self) -> Tensor:
        """Quadrature points by missed steps, then by last step, (REACH + last steps, 4)."""
        if self._points_of == self._step:
            return self._points
        near, far = self._missed.near(self._step), self._missed.far(self._step)
        if len(self._points) != REACH + len(far):
            self._points = torch.from_numpy(np.concatenate([near, far])).to(self._tables[0])
        self._points[:REACH] = torch.from_numpy(near)
        self._points_of = self._step
        return self._points

    def _move(self, state: State, grad: Tensor) -> None:
        weights, first, second = state
        done = torch.tensor(float(self._step - 1), device=weights.device)
        adam([weights], [grad], [first], [second], [], [done], fused=True, lr=self._present_rate, beta1=BETA1,
             beta2=BETA2, eps=EPSILON, weight_decay=0, amsgrad=False, maximize=False)  # fmt: skip

    def _put(self, rows: Tensor, states: list[State]) -> None:
        for table, moments, state in zip(self._tables, self._moments, states, strict=True):
            for whole, part in zip((table, *moments), state, strict=True):
                whole.index_copy_(0, rows, part)
        self._last.index_fill_(0, rows, self._step)

    @torch.no_grad()
    def settle(self, rows: slice = EVERY) -> None:
        """Apply all missed steps of some rows, which are then up to date as of the current step."""
        assert rows is EVERY or self._open is None, "a step must write back the rows that were read"
        first, end, _ = rows.indices(len(self._last))
        last, chunk = self._last[first:end], CHUNK[self._last.device.type]
        behind = ((last > 0) & (last < self._step)).nonzero().squeeze(1) + first
        if 4 * len(behind) < end - first:
            for some in behind.split(chunk):
                self._put(some, self._current(some))
            return
        for start in range(first, end, chunk):  # in place: three times faster than gather and scatter
            part = slice(start, min(start + chunk, end))
            both = zip(self._tables, self._moments, strict=True)
            self._catch_up(self._last[part], [(table[part], *(m[part] for m in moments)) for table, moments in both])
        last.masked_fill_(last > 0, self._step)  # rows that were never read have no missed steps

    def tensors(self) -> Tensors:
        """Moments, and the step of each row's last update."""
        tensors = {"last": self._last, "step": torch.tensor(self._step)}
        for place, (first, second) in enumerate(self._moments):
            tensors |= {f"first.{place}": first, f"second.{place}": second}
        return tensors

    def restore(self, tensors: Tensors) -> None:
        """Restore a checkpoint."""
        for place, (first, second) in enumerate(self._moments):
            first.copy_(tensors[f"first.{place}"])
            second.copy_(tensors[f"second.{place}"])
        self._last.copy_(tensors["last"])
        self._step = int(tensors["step"])


class RowwiseAdagrad(SparseOptimizer):
    """Row-wise Adagrad: one number per row, the sum of its mean squared gradients."""

    def __init__(self, tables: Sequence[nn.Parameter], rate: Rate, distinct: Distinct) -> None:
        super().__init__(tables, rate, distinct)
        self._sums = [torch.zeros(len(table), device=table.device) for table in tables]

    def settle(self, rows: slice = EVERY) -> None:
        """Nothing: rows that are not read do not change."""

    def _current(self, rows: Tensor) -> list[State]:
        both = zip(self._tables, self._sums, strict=True)
        return [(table.index_select(0, rows), sums.index_select(0, rows)) for table, sums in both]

    def _move(self, state: State, grad: Tensor) -> None:
        weights, sums = state
        sums += grad.square().mean(1)
        weights.addcdiv_(grad, sums.sqrt().add_(EPSILON).unsqueeze(1).expand_as(grad), value=-self._present_rate)

    def _put(self, rows: Tensor, states: list[State]) -> None:
        for table, all_sums, (weights, sums) in zip(self._tables, self._sums, states, strict=True):
            table.index_copy_(0, rows, weights)
            all_sums.index_copy_(0, rows, sums)

    def tensors(self) -> Tensors:
        """The sums of mean squared gradients."""
        return {f"sums.{place}": sums for place, sums in enumerate(self._sums)}

    def restore(self, tensors: Tensors) -> None:
        """Restore a checkpoint."""
        for place, sums in enumerate(self._sums):
            sums.copy_(tensors[f"sums.{place}"])
