"""Adam for tables on a GPU in kernels: sums of gradients in a fixed order, and the update that reads them.

The places of a batch are sorted by row once for all tables of the same fields. Then every row knows its places, its
gradients are summed in their order, so the same training gives the same numbers, and Adam reads each number of a table
once. The gradient of a table is never stored, and all shapes are the same in all steps, so that a graph can be
captured.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

from fieldwise.tables.adam_catchup import BETA1, BETA2, EPSILON, REACH, SETTLED
from fieldwise.tables.beside import Beside
from fieldwise.tables.lookup import Found, Places
from fieldwise.tables.rate import WARM, Rate
from fieldwise.tables.state import Tensors

BETAS = (BETA1, BETA2)
EVERY = slice(None)
State = tuple[Tensor, Tensor, Tensor]
"""A table and its two moments."""


class FusedAdam(ABC):
    """Tables that stack the same fields: row i of each belongs to the same id."""

    split = False
    """Whether each process has rows of its own; never."""

    def __init__(self, tables: Sequence[nn.Parameter], rate: Rate) -> None:
        from fieldwise.kernels import rows as by_row
        from fieldwise.kernels import tables as kernels

        self._kernels, self._by_row, self._rate, self._tables = kernels, by_row, rate, list(tables)
        self._states: list[State] = [(t.detach(), torch.zeros_like(t), torch.zeros_like(t)) for t in tables]
        device = tables[0].device
        self._step = torch.zeros((), dtype=torch.int32, device=device)
        self._top, self._rates = torch.tensor(rate.top, device=device), torch.zeros(2, device=device)
        self._ends = torch.zeros(len(tables[0]), dtype=torch.int32, device=device)
        self._read: Tensor | None = None
        self._sorted: tuple[Tensor, Tensor] | None = None
        self._early: tuple[Tensor, Tensor] | None = None
        self._beside = Beside("tables", urgent=False)
        self._grads: list[Tensor | None] = [None] * len(tables)

    @abstractmethod
    def read(self, rows: Tensor, keep: bool, table: int = 0) -> Found:
        """Up-to-date rows (B, n) of one of the tables; with `keep`, the next step updates them."""

    @torch.no_grad()
    def prepare(self, rows: Callable[[], Tensor], ids: Tensor) -> None:
        """Begin to sort the rows (B, n) that the next step updates, which follow from ids, beside what is before it."""
        if self._early is None:
            with self._beside(ids):
                self._early = torch.sort(rows().flatten(), stable=True)

    def _sort(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """The places of the batch that is updated in the order of their rows, if these were not sorted before."""
        early, self._early = self._early, None
        return torch.sort(rows.flatten(), stable=True) if early is None else early

    def _found(self, rows: Tensor, table: int) -> Found:
        return Found(self._tables[table], Places(rows), sink=partial(self._add, table))

    def _add(self, table: int, grads: Tensor) -> None:
        """Keeps the gradient at places of a table, or adds it to that of an earlier read of the same batch."""
        before = self._grads[table]
        self._grads[table] = grads if before is None else before + grads

    def _is_begun(self, rows: Tensor) -> bool:
        """Whether a table of the same fields was read in this step, which must have been at the same rows."""
        if self._read is None:
            self._read = rows
            return False
        capturing = rows.is_cuda and torch.cuda.is_current_stream_capturing()
        assert capturing or torch.equal(self._read, rows), "one batch per step"
        return True

    @torch.no_grad()
    def step(self) -> None:
        """Update rows by the gradients of the last backward pass."""
        self._beside.join(*self._sorted or ())
        if self._sorted is None:
            self._early = None
            return
        self._before()
        (rows, order), self._sorted, self._read = self._sorted, None, None
        for place, state in enumerate(self._states):
            grads, self._grads[place] = self._grads[place], None
            width = state[0].shape[1]
            flat = state[0].new_zeros(len(rows), width) if grads is None else grads.reshape(-1, width).contiguous()
            sums = state[0].new_empty(len(rows), width)
            self._kernels.pieces(flat, rows, order, sums, len(rows) // len(flat))
            self._by_row.adam(state, sums, rows, self._ends, self._rates, BETAS, EPSILON)
        self._after(rows)

    def _tick(self) -> None:
        """Counts a step and computes its rates."""
        self._kernels.tick(self._step, self._top, self._rates, (math.log(BETA1), math.log(BETA2)))

    @abstractmethod
    def _before(self) -> None:
        """Called before the rows of the batch move."""

    @abstractmethod
    def _after(self, rows: Tensor) -> None:
        """Called after the rows of the batch have moved."""

    def at(self, step: int) -> None:
        """Set the rate of a step, from 0."""
        if self._rate.steps is not None:
            self._top.fill_(self._rate.at(step))

    @abstractmethod
    def settle(self, rows: slice = EVERY) -> None:
        """Bring rows up to date in the tables themselves."""

    def tensors(self) -> Tensors:
        """Moments and the number of steps."""
        tensors = {"step": self._step}
        for place, (_, first, second) in enumerate(self._states):
            tensors |= {f"first.{place}": first, f"second.{place}": second}
        return tensors

    def restore(self, tensors: Tensors) -> None:
        """Restore a checkpoint."""
        for name, mine in self.tensors().items():
            mine.copy_(tensors[name])


class WholeTables(FusedAdam):
    """Updates all rows at every step: those that the batch does not read have a gradient of zero.

    They do not wait for the model: in a captured graph, their update runs beside it.
    """

    def read(self, rows: Tensor, keep: bool, table: int = 0) -> Found:
        """Rows (B, n) of one of the tables; with `keep`, the next step updates them."""
        if not (keep and torch.is_grad_enabled()):
            return Found(self._states[table][0], Places(rows))
        if not self._is_begun(rows):
            with self._beside(rows):
                self._update_others(rows)
        return self._found(rows, table)

    @torch.no_grad()
    def _update_others(self, rows: Tensor) -> None:
        """Sorts the places by row, and updates all rows that have none."""
        self._sorted = self._sort(rows)
        self._kernels.find_ends(self._sorted[0], self._ends)
        self._tick()
        for state in self._states:
            self._kernels.idle(state, self._ends, self._rates, BETAS, EPSILON)

    def _before(self) -> None:
        """Nothing."""

    def _after(self, rows: Tensor) -> None:
        """Nothing."""

    def settle(self, rows: slice = EVERY) -> None:
        """Nothing: all rows are up to date after every step."""


class ReadRows(FusedAdam):
    """Updates the rows that a batch reads, which first catch up on the steps that they missed."""

    def __init__(self, tables: Sequence[nn.Parameter], rate: Rate) -> None:
        super().__init__(tables, rate)
        self._points, self._lasts = points(tables[0].device), torch.zeros_like(self._ends)

    def read(self, rows: Tensor, keep: bool, table: int = 0) -> Found:
        """Up-to-date rows (B, n) of one of the tables; with `keep`, the next step updates them."""
        if not (keep and torch.is_grad_enabled()):
            self._bring_up_to_date(torch.sort(rows.flatten())[0])
            return Found(self._states[table][0], Places(rows))
        if not self._is_begun(rows):
            self._sorted = self._sort(rows)
            self._beside.join(*self._sorted)
            self._bring_up_to_date(self._sorted[0])
        return self._found(rows, table)

    @torch.no_grad()
    def _bring_up_to_date(self, ascending: Tensor) -> None:
        """Applies what sorted rows missed."""
        self._catch_up(ascending)
        self._by_row.mark(self._lasts, self._ends, ascending, self._step, True)

    def _catch_up(self, rows: Tensor | range) -> None:
        rate = (self._rate.top, self._rate.steps or 0, WARM)
        for state in self._states:
            self._by_row.catch_up(state, self._lasts, rows, self._points, self._step, rate, BETAS, EPSILON)

    def _before(self) -> None:
        self._tick()

    def _after(self, rows: Tensor) -> None:
        self._by_row.mark(self._lasts, self._ends, rows, self._step, False)

    @torch.no_grad()
    def settle(self, rows: slice = EVERY) -> None:
        """Apply all missed steps of some rows, which are then up to date as of the current step."""
        first, end, _ = rows.indices(len(self._lasts))
        self._catch_up(range(first, end))
        last = self._lasts[first:end]
        last.copy_(torch.where(last > 0, self._step, last))

    def tensors(self) -> Tensors:
        """Moments, the number of steps, and the step of each row's last update."""
        return {**super().tensors(), "last": self._lasts}


def points(device: torch.device) -> Tensor:
    """Two quadrature points for a row by its last step and the steps that it missed, (SETTLED + 1, REACH + 1, 4)."""
    last = torch.arange(SETTLED + 1, dtype=torch.float64, device=device).unsqueeze(1)
    missed = torch.arange(1, REACH + 1, dtype=torch.float64, device=device)
    moments = []
    step = last + missed
    x = (-torch.expm1(step * math.log(BETA2))).sqrt() * BETA2 ** (-missed / 2)
    weight = BETA1**missed / (1 - BETA1**step)
    for power in range(4):
        moments.append(functional.pad((weight * x**power).cumsum(1), (1, 0)))
    return gauss(*moments).float()


def gauss(total: Tensor, first: Tensor, second: Tensor, third: Tensor) -> Tensor:
    """The two points with these first four moments, as `adam_catchup` computes them."""
    nothing = total == 0
    safe = torch.where(nothing, 1.0, total)
    first, second, third = (torch.where(nothing, 1.0, moment / safe) for moment in (first, second, third))
    spread = second - first**2
    single = spread <= 1e-12 * first**2
    spread = torch.where(single, 0.25, spread)
    lean = torch.where(single, 0.0, (third - 3 * first * second + 2 * first**3) / spread)
    root = (lean**2 + 4 * spread).sqrt()
    share = torch.where(single, 1.0, (root + lean) / (2 * root))
    low, high = (first + torch.where(single, 0.0, (lean + sign * root) / 2) for sign in (-1, 1))
    return torch.stack([total * share * low, low, total * (1 - share) * high, high], -1).contiguous()
