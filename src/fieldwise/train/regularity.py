"""Soft orthogonality: columns of one table should not repeat each other (paper, equation SO).

The penalty depends on a table V through its Gram matrix alone, so its gradient is V times a small matrix. There are two
ways to use it. In the loss, as in the paper: Adam sees it in every row, so every row is moved at every step. Or as a
step of its own (ours), V <- V M: a table of so many batches' rows is stepped once in so many steps, with the strength
of all of them, so that the cost of a step does not grow with the table.
"""

from collections.abc import Callable
from typing import Final, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from fieldwise.core.settings import Settings
from fieldwise.tables.embedding import FieldEmbedding
from fieldwise.tables.state import Tensors

SELDOM: Final = 8
"""Steps between two steps of a small table."""

SHORT: Final = 1e-12
"""A shorter column counts as empty."""

Settle = Callable[[nn.Parameter, slice], None]
"""Brings rows of a stacked table up to date, where they are moved only when they are read."""


class SoftOrthogonality(Settings):
    """strength * sum over fields of || V^T V - I ||^2 / width^2, on the tables or their normalized columns."""

    strength: float = Field(1e-3, ge=0)
    """Weight; 0 leaves it out. The paper, in the loss: 1e-3 raw on MovieLens-1M, 1e-6 cosine on Avazu."""
    form: Literal["cosine", "raw"] = "cosine"
    """cosine: columns scaled to length 1, so that only angles count; raw: the tables as they are, as the paper's."""
    place: Literal["step", "loss"] = "step"
    """step: beside the optimizer, at a cost that does not grow with the tables; loss: in the loss, as the paper's."""

    def penalty(self, embedding: FieldEmbedding) -> Tensor:
        """What is added to the training loss, a scalar."""
        total = torch.zeros((), device=next(embedding.parameters()).device)
        for j, width in enumerate(embedding.layout.widths):
            if width:
                table = embedding.table(j)
                total = total + self.of_gram(table.T @ table)
        return self.strength * total

    def of_gram(self, gram: Tensor) -> Tensor:
        """|| V^T V - I ||^2 / width^2 of one table, by its Gram matrix (width, width)."""
        if self.form == "cosine":
            own = lengths(gram)
            gram = gram / own / own[:, None]
        return (gram - torch.eye(len(gram), device=gram.device)).square().sum() / len(gram) ** 2


def lengths(gram: Tensor) -> Tensor:
    """The lengths of a table's columns by its Gram matrix, (width,); 1 for a column of none, which has no direction.

    The root is taken of what is long enough only: at zero its slope is infinite, and would make all gradients NaN.
    """
    squares = gram.diagonal()
    return torch.where(squares > SHORT**2, squares, 1).sqrt()


class OrthogonalSteps:
    """Soft orthogonality as steps of its own, field by field, each as often as its size allows."""

    def __init__(self, settings: SoftOrthogonality, embedding: FieldEmbedding, batch: int) -> None:
        self._settings, self._embedding = settings, embedding
        rows = embedding.layout.schema.cardinalities
        self._every = {j: max(SELDOM, -(-rows[j] // batch)) for j, width in enumerate(embedding.layout.widths) if width}
        self.steps = 0

    def step(self, settle: Settle = lambda _table, _rows: None) -> None:
        """After a step of the optimizer, whose `settle` brings the rows of a table that is moved up to date first."""
        self.steps += 1
        for j, every in self._every.items():
            if (self.steps + j) % every == 0:
                settle(*self._embedding.span(j))
                self._move(self._embedding.table(j).detach(), every)

    def tensors(self) -> Tensors:
        """What a checkpoint keeps."""
        return {"steps": torch.tensor(self.steps)}

    def restore(self, tensors: Tensors) -> None:
        """Takes a checkpoint back."""
        self.steps = int(tensors["steps"])

    def _move(self, table: Tensor, steps: int) -> None:
        """A gradient step of the penalty as strong as so many, never beyond half the gap, which would be Newton's.

        In the cosine form the columns turn apart and keep their lengths.
        """
        gram = table.T @ table
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
