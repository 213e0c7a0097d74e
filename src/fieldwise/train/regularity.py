"""Soft orthogonality: penalizes correlated columns of a table (paper, equation SO).

The penalty depends on a table V only through its Gram matrix, so its gradient is V times a small matrix. There are two
ways to apply it. In the loss, as in the paper: every row has a gradient, so Adam updates every row at every step. Or as
a separate step (ours), V <- V M: a table with the rows of n batches gets one step every n steps, n times as strong, so
that the cost per step does not grow with the table.
"""

from collections.abc import Callable
from typing import Final, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from fieldwise.core.settings import Settings
from fieldwise.models.model import FieldTables
from fieldwise.processes.ranks import current
from fieldwise.tables.shards import shards_of
from fieldwise.tables.state import Tensors

SELDOM: Final = 8
"""Training steps between two orthogonality steps of a small table."""

SHORT: Final = 1e-12
"""A column with a smaller norm counts as zero."""

Settle = Callable[[nn.Parameter, slice], None]
"""Brings rows of a stacked table up to date, for optimizers that update rows only when they are read."""


class SoftOrthogonality(Settings):
    """strength * sum over fields of || V^T V - I ||^2 / width^2, on the tables or their normalized columns."""

    strength: float = Field(1e-3, ge=0)
    """Weight, at least 0; 0 disables it. The paper, in the loss: 1e-3 raw on MovieLens-1M, 1e-6 cosine on Avazu."""
    form: Literal["cosine", "raw"] = "cosine"
    """cosine: columns scaled to norm 1, so that only angles count; raw: unscaled, as in the paper."""
    place: Literal["step", "loss"] = "step"
    """step: a separate step, whose cost does not grow with the tables; loss: added to the loss, as in the paper."""

    def penalty(self, embedding: FieldTables) -> Tensor:
        """The penalty on the training loss, a scalar."""
        total = torch.zeros((), device=next(embedding.parameters()).device)
        for j, width in enumerate(embedding.layout.widths):
            if width:
                table, shards = embedding.table(j), shards_of(embedding, j)
                gram, times = table.T @ table, 1
                if shards:  # its value is that of all rows; only this process moves its own, by the whole gradient
                    gram, times = gram + (shards[0].total(gram) - gram).detach(), current().size
                total = total + self.of_gram(gram) * times
        return self.strength * total

    def of_gram(self, gram: Tensor) -> Tensor:
        """|| V^T V - I ||^2 / width^2 of one table, from its Gram matrix (width, width)."""
        if self.form == "cosine":
            own = lengths(gram)
            gram = gram / own / own[:, None]
        return (gram - torch.eye(len(gram), device=gram.device)).square().sum() / len(gram) ** 2


def lengths(gram: Tensor) -> Tensor:
    """Norms of a table's columns from its Gram matrix, (width,); 1 for a zero column, which has no direction.

    The square root is never taken at zero, where its infinite derivative would make all gradients NaN.
    """
    squares = gram.diagonal()
    return torch.where(squares > SHORT**2, squares, 1).sqrt()


class OrthogonalSteps:
    """Soft orthogonality as separate steps per field; large tables get fewer, stronger steps."""

    def __init__(self, settings: SoftOrthogonality, embedding: FieldTables, batch: int) -> None:
        self._settings, self._embedding = settings, embedding
        rows = embedding.layout.schema.cardinalities
        self._every = {j: max(SELDOM, -(-rows[j] // batch)) for j, width in enumerate(embedding.layout.widths) if width}
        self.steps = 0

    def step(self, settle: Settle = lambda _table, _rows: None) -> None:
        """Called after a step of the optimizer; its `settle` brings a table's rows up to date before they change."""
        self.steps += 1
        for j, every in self._every.items():
            if (self.steps + j) % every == 0:
                settle(*self._embedding.span(j))
                table, shards = self._embedding.table(j).detach(), shards_of(self._embedding, j)
                gram = table.T @ table
                self._move(table, shards[0].total(gram) if shards else gram, every)

    def tensors(self) -> Tensors:
        """State for a checkpoint."""
        return {"steps": torch.tensor(self.steps)}

    def restore(self, tensors: Tensors) -> None:
        """Restore a checkpoint."""
        self.steps = int(tensors["steps"])

    def _move(self, table: Tensor, gram: Tensor, steps: int) -> None:
        """One gradient step of the penalty with the strength of `steps`, at most half the gap (a Newton step).

        In the cosine form the columns rotate and keep their norms.
        """
        own = torch.ones(len(gram), device=table.device)
        if self._settings.form == "cosine":
            own = lengths(gram)
            gram = gram / own / own[:, None]
        unit = torch.eye(len(gram), device=table.device)
        gap, strength = gram - unit, self._settings.strength * steps * 4 / len(gram) ** 2
        step = unit - strength * gap / (1 + 2 * strength * torch.linalg.matrix_norm(gap).clamp(min=1))
        if self._settings.form == "cosine":
            step = step / lengths(step.T @ gram @ step)
        table.copy_(table @ (step / own[:, None] * own))
