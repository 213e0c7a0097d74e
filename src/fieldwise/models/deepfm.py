"""DeepFM (Guo et al. 2017): a factorization machine and an MLP over the same lifted embeddings."""

import torch
from pydantic import Field
from torch import Tensor, nn

from fieldwise.core.mask import Mask
from fieldwise.core.schema import Layout
from fieldwise.models.fields import kept_fields, live_fields
from fieldwise.models.layers import Lift, mlp, pairwise, pairwise_of_sums
from fieldwise.models.model import Head, OwnModel, Slices
from fieldwise.tables.summed import SummedHead


class DeepFM(OwnModel):
    """FM plus MLP; default sizes as in the preset `paper`."""

    common: int = Field(16, ge=1)
    """Common width that every field is lifted to, at least 1."""
    hidden: tuple[int, ...] = Field((16, 16), min_length=1)
    """Layer sizes of the MLP, at least one."""
    dropout: float = Field(0.0, ge=0, lt=1)
    """Dropout probability after each hidden layer, in [0, 1)."""

    def head(self, layout: Layout) -> Head:
        """A new head for these columns."""
        return DeepFMHead(layout, self)


class DeepFMHead(Head, SummedHead):
    """Lift, pairwise products and MLP; fields of width 0 are no inputs of the MLP."""

    takes_padded = True

    def __init__(self, layout: Layout, settings: DeepFM) -> None:
        super().__init__()
        live = live_fields(layout)
        self.common = settings.common
        self._live, self._on_gpu = live, dict[tuple[tuple[int, ...], torch.device], Tensor]()
        self.register_buffer("live", torch.tensor(live), persistent=False)
        self.lift = Lift(layout, settings.common)
        self.mlp = mlp(len(live) * settings.common, settings.hidden, settings.dropout)
        self.out = nn.Linear(settings.hidden[-1], 1)

    def forward(self, v: Tensor) -> Tensor:
        """Logits (B,) of the embedding v (B, S)."""
        x = self.lift(v)  # (B, F, D)
        live = self.get_buffer("live")
        deep: Tensor = self.out(self.mlp((x if len(live) == x.shape[1] else x[:, live]).flatten(1)))
        return pairwise(x) + deep.squeeze(1)

    def maps(self, fields: list[int]) -> Tensor:
        """The lifts, and the lifts followed by the MLP's first layer."""
        live = self._live  # not the buffer: a captured step must not wait for the GPU
        lifts, first = self.lift.maps(fields), self.mlp.get_parameter("0.weight")  # (hidden, live fields * D)
        each = first.unflatten(1, (len(live), self.common)).permute(1, 2, 0)  # (live fields, D, hidden)
        own = each if len(live) == len(fields) else self._of(each, fields)
        return torch.cat([lifts, lifts @ own], 2)

    def _of(self, each: Tensor, fields: list[int]) -> Tensor:
        """The parts of the MLP's inputs (live fields, ...) that belong to some fields."""
        places, device = tuple(self._live.index(j) for j in fields), each.device
        if device.type == "cpu":
            return each[list(places)]
        if (places, device) not in self._on_gpu:  # a captured step cannot copy them there, the steps before it do
            self._on_gpu[places, device] = torch.tensor(places, device=device)
        return each.index_select(0, self._on_gpu[places, device])

    def of_sums(self, sums: Tensor) -> Tensor:
        """Logits (B,)."""
        bias = self.mlp.get_parameter("0.bias")
        total, first, squares = sums.split(
            [self.common, len(bias), 1], 1
        )  # split has one backward pass, slices have one each
        deep: Tensor = self.out(self.mlp[1:](first + bias))
        return pairwise_of_sums(total, squares) + deep.squeeze(1)

    def slices(self, mask: Mask) -> Slices:
        """Rows of the lift are sliced by column, inputs of the MLP by field."""
        return {
            "lift.weight": {0: torch.from_numpy(mask.indices)},
            "mlp.0.weight": {1: kept_fields(mask, self.common)},
        }

    def output_bias(self) -> nn.Parameter:
        """The bias of the output."""
        return self.out.bias
