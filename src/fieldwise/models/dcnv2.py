"""DCN-V2 (Wang et al. 2021): full-rank cross layers and a parallel MLP over the flat embedding."""

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional

from fieldwise.core.mask import Mask
from fieldwise.core.schema import Layout
from fieldwise.models.crossed import Crosses, crossed, crosses_by_kernel
from fieldwise.models.layers import mlp
from fieldwise.models.model import Head, OwnModel, Slices
from fieldwise.tables.beside import Beside


class DCNv2(OwnModel):
    """Bit-wise crosses, so mixed widths need no lift; default sizes match the paper's parameter counts."""

    cross_layers: int = Field(3, ge=1, le=1000)
    """Number of cross layers, from 1 to 1,000."""
    hidden: tuple[int, ...] = Field((16, 16), min_length=1)
    """Layer sizes of the MLP, at least one."""
    dropout: float = Field(0.0, ge=0, lt=1)
    """Dropout probability after each hidden layer, in [0, 1)."""

    def has_first_order(self) -> bool:
        """No: the output layer reads the embedding directly."""
        return False

    def head(self, layout: Layout) -> Head:
        """A new head for these columns."""
        return DCNv2Head(layout, self)


class DCNv2Head(Head):
    """Cross layers x <- x0 * (W x + b) + x, an MLP, and one linear output over both."""

    def __init__(self, layout: Layout, settings: DCNv2) -> None:
        super().__init__()
        columns = layout.columns
        self.cross = nn.ModuleList(nn.Linear(columns, columns) for _ in range(settings.cross_layers))
        self.mlp = mlp(columns, settings.hidden, settings.dropout)
        self.out = nn.Linear(columns + settings.hidden[-1], 1)

    def forward(self, v: Tensor) -> Tensor:
        """Logits (B,) of the embedding v (B, S)."""
        of_crossed, of_deep = self.out.weight.split([v.shape[1], self.out.in_features - v.shape[1]], 1)
        first = self.mlp[0]
        if crosses_by_kernel(v) and isinstance(first, nn.Linear):
            return self._by_kernel(v, first, of_crossed[0], of_deep)
        x = crossed(v, self.cross)  # (B, S)
        logits = functional.linear(x, of_crossed, self.out.bias) + functional.linear(self.mlp(v), of_deep)
        return logits.squeeze(1)

    def _by_kernel(self, v: Tensor, first: nn.Linear, of_crossed: Tensor, of_deep: Tensor) -> Tensor:
        """The same on a GPU, with the small rest of the MLP beside the cross layers."""
        crosses, beside = Crosses(v, self.cross, first), Beside("MLP")
        with beside(crosses.hidden), torch.autocast("cuda", enabled=False):  # casts would take longer than they save
            deep = functional.linear(self.mlp[1:](crosses.hidden), of_deep, self.out.bias).squeeze(1)
        by_x = crosses.times(of_crossed)
        beside.join(deep)
        return by_x + deep

    def slices(self, mask: Mask) -> Slices:
        """A column is removed from both axes of every cross layer, and from the inputs of the MLP and the output."""
        kept = torch.from_numpy(mask.indices)
        deep = torch.arange(mask.full.columns, self.out.in_features)
        slices: Slices = {
            "mlp.0.weight": {1: kept},
            "out.weight": {1: torch.cat([kept, deep])},
        }
        for place in range(len(self.cross)):
            slices[f"cross.{place}.weight"] = {0: kept, 1: kept}
            slices[f"cross.{place}.bias"] = {0: kept}
        return slices

    def output_bias(self) -> nn.Parameter:
        """The bias of the output."""
        return self.out.bias
