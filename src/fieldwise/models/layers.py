"""Pieces that heads are built from."""

import math

import torch
from torch import Tensor, nn

from fieldwise.core.schema import Layout
from fieldwise.models.embedding import by_width


class Lift(nn.Module):
    """A bias-free linear map per field from its own width to a common one: (B, S) to (B, F, D).

    One row of `weight` per column, so that dropping a column is dropping a row. A field of width 0 gives zeros.
    """

    def __init__(self, layout: Layout, common: int) -> None:
        super().__init__()
        self._fields, self._groups = len(layout.schema), by_width(layout)
        starts = layout.starts
        bound = torch.tensor([1 / math.sqrt(layout.widths[j]) for j in layout.owners])
        self.weight = nn.Parameter((torch.rand(layout.columns, common) * 2 - 1) * bound[:, None])
        for width, fields in self._groups.items():
            columns = torch.tensor([range(starts[j], starts[j] + width) for j in fields])
            self.register_buffer(f"columns_{width}", columns, persistent=False)  # (fields, width)

    def forward(self, v: Tensor) -> Tensor:
        """Every field at the common width."""
        parts: dict[int, Tensor] = {}
        for width, fields in self._groups.items():
            columns = self.get_buffer(f"columns_{width}")
            own = v[:, columns] if len(self._groups) > 1 else v.unflatten(1, columns.shape)  # (B, fields, width)
            lifted = torch.einsum("bfw,fwd->bfd", own, self.weight[columns])
            if len(fields) == self._fields:
                return lifted
            parts.update(zip(fields, lifted.unbind(1), strict=True))
        nothing = v.new_zeros(v.shape[0], self.weight.shape[1])
        return torch.stack([parts.get(j, nothing) for j in range(self._fields)], dim=1)


def mlp(inputs: int, hidden: tuple[int, ...], dropout: float) -> nn.Sequential:
    """Linear, batch normalisation, ReLU and dropout for each hidden size."""
    layers: list[nn.Module] = []
    for before, after in zip((inputs, *hidden), hidden, strict=False):
        layers += [nn.Linear(before, after), nn.BatchNorm1d(after), nn.ReLU()]
        layers += [nn.Dropout(dropout)] if dropout else []
    return nn.Sequential(*layers)


def pairwise(x: Tensor) -> Tensor:
    """The sum of inner products of all pairs of fields: (B, F, D) to (B,)."""
    pairs = x.sum(1).square() - x.square().sum(1)  # (B, D)
    return 0.5 * pairs.sum(1)
