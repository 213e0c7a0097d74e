"""Factorization machine (Rendle 2010), with lifts so that mixed widths can interact (Ginart et al. 2021)."""

import torch
from pydantic import Field
from torch import Tensor, nn

from fieldwise.core.mask import Mask
from fieldwise.core.schema import Layout
from fieldwise.models.layers import Lift, pairwise, pairwise_of_sums
from fieldwise.models.model import Head, OwnModel, Slices
from fieldwise.tables.summed import SummedHead


class FM(OwnModel):
    """First-order weights, a bias and all pairwise inner products of the lifted fields."""

    common: int = Field(16, ge=1)
    """Common width that every field is lifted to, at least 1."""

    def head(self, layout: Layout) -> Head:
        """A new head for these columns."""
        return FMHead(layout, self.common)


class FMHead(Head, SummedHead):
    """Lift and pairwise products."""

    takes_padded = True
    only_pairs = True

    def __init__(self, layout: Layout, common: int) -> None:
        super().__init__()
        self.common = common
        self.lift = Lift(layout, common)
        self.bias = nn.Parameter(torch.zeros(1))

    def forward(self, v: Tensor) -> Tensor:
        """Logits (B,) of the embedding v (B, S)."""
        return pairwise(self.lift(v)) + self.bias

    def maps(self, fields: list[int]) -> Tensor:
        """The lifts."""
        return self.lift.maps(fields)

    def of_sums(self, sums: Tensor) -> Tensor:
        """Logits (B,)."""
        return pairwise_of_sums(*sums.split([self.common, 1], 1)) + self.bias

    def of_pairs(self, pairs: Tensor) -> Tensor:
        """Logits (B,)."""
        return pairs + self.bias

    def slices(self, mask: Mask) -> Slices:
        """Rows of the lift are sliced by column."""
        return {"lift.weight": {0: torch.from_numpy(mask.indices)}}

    def output_bias(self) -> nn.Parameter:
        """The bias of the output."""
        return self.bias
