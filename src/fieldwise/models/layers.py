"""Building blocks of heads."""

import math
from typing import Any, Final

import torch
from torch import Tensor, nn

from fieldwise.core.schema import Layout
from fieldwise.models.fields import live_fields
from fieldwise.tables.embedding import runs
from fieldwise.tables.joined import padded_width

CHUNKS: Final = 16
"""Maximum number of chunks of a batch that a GPU lifts in parallel."""
FEW_RUNS: Final = 2
"""Up to this many runs of adjacent fields of equal width, a batch is lifted run by run; also where padding would
multiply its numbers by more than the number of runs."""
PADDED: Final = 2**19
"""Numbers of a batch up to which a CPU lifts fields of all widths together, padded with zeros: more leave the cache."""


class Lift(nn.Module):
    """A bias-free linear map per field from its width to a common width: (B, S) to (B, F, D).

    Fields with columns may also come padded with zeros to the padded width of the widest: (B, fields * width).
    `weight` has one row per column, so that removing a column removes a row. A field of width 0 gives zeros.
    """

    def __init__(self, layout: Layout, common: int) -> None:
        super().__init__()
        self._layout, self._runs = layout, runs(layout.widths)
        live = live_fields(layout)
        self._live = len(live)
        most = max(layout.widths, default=0)
        self._padded, self._given = most * len(live), padded_width(most) * len(live)
        self._gains = len(self._runs) > FEW_RUNS and self._padded <= len(self._runs) * layout.columns
        within = [place for width in layout.widths for place in range(width)]
        self.register_buffer("within", torch.tensor(within, dtype=torch.int64), persistent=False)
        owners = [place for place, j in enumerate(live) for _ in range(layout.widths[j])]
        self.register_buffer("owners", torch.tensor(owners, dtype=torch.int64), persistent=False)
        self.register_buffer("live", torch.tensor(live, dtype=torch.int64), persistent=False)
        weight = torch.empty(layout.columns, common)
        if not weight.is_meta:  # as in FieldEmbedding
            bound = torch.tensor([1 / math.sqrt(layout.widths[j]) for j in layout.owners])
            weight = (weight.uniform_() * 2 - 1) * bound[:, None]
        self.weight = nn.Parameter(weight)

    def forward(self, v: Tensor) -> Tensor:
        """Lift every field to the common width."""
        if v.shape[1] == self._given != len(self.weight):
            return self._padded_lift(v)
        if len(self._runs) == 1:
            return self._lift(v, self.weight, *self._runs[0])
        if self._lifts_together(v):
            return self._padded_lift(v.new_zeros(len(v), self._padded).index_copy(1, self._places(self._padded), v))
        sizes = [width * fields for width, fields in self._runs]
        parts = zip(v.split(sizes, 1), self.weight.split(sizes), self._runs, strict=True)
        return torch.cat([self._lift(own, weight, *run) for own, weight, run in parts], 1)  # (B, F, D)

    def _lifts_together(self, v: Tensor) -> bool:
        """Whether padding saves time: a training step on a CPU in small batches spends it on calls, one per run."""
        plain = v.device.type == "cpu" and not torch.is_autocast_enabled("cpu") and not torch.compiler.is_compiling()
        steps = self.training and torch.is_grad_enabled() and plain
        return steps and self._gains and len(v) * self._padded <= PADDED

    def _places(self, padded: int) -> Tensor:
        """The place of each column where all fields together are padded to so many."""
        return self.get_buffer("owners") * (padded // self._live) + self.get_buffer("within")

    def _padded_lift(self, v: Tensor) -> Tensor:
        """Fields that are padded with zeros to one width, in one product."""
        padded, fields = v.shape[1], len(self._layout.widths)
        maps = self.weight.new_zeros(padded, self.weight.shape[1]).index_copy(0, self._places(padded), self.weight)
        each = v.unflatten(1, (self._live, -1)).transpose(0, 1)
        lifted = torch.bmm(each, maps.unflatten(0, (self._live, -1)))  # (fields with columns, B, D)
        if self._live < fields:
            lifted = lifted.new_zeros(fields, *lifted.shape[1:]).index_copy(0, self.get_buffer("live"), lifted)
        return lifted.transpose(0, 1)

    def maps(self, fields: list[int]) -> Tensor:
        """The maps of fields of equal width, (fields, width, D)."""
        if len(fields) == len(self._layout.widths):
            return self.weight.view(len(fields), -1, self.weight.shape[1])
        each = self.weight.split(self._layout.widths)
        return torch.stack([each[j] for j in fields])

    def _lift(self, v: Tensor, weight: Tensor, width: int, fields: int) -> Tensor:
        """Lift adjacent fields of equal width, (B, fields, D)."""
        if not width:
            return v.new_zeros(
                v.shape[0], fields, self.weight.shape[1]
            )  # len(v) would be a constant in an exported graph
        fields_of_v, maps = v.unflatten(1, (fields, width)), weight.unflatten(0, (fields, width))
        if v.is_cuda and weight.requires_grad:
            return _in_chunks(fields_of_v, maps)
        return torch.einsum("bfw,fwd->bfd", fields_of_v, maps)


def _in_chunks(v: Tensor, maps: Tensor) -> Tensor:
    """Fields (B, F, width) through their maps (F, width, D), with chunks of the batch in parallel.

    A map's gradient is a sum over the batch. As a single sum, its result is too small to occupy a GPU.
    """
    chunks = math.gcd(len(v), CHUNKS)
    each = v.unflatten(0, (chunks, -1))
    return torch.einsum("pbfw,pfwd->pbfd", each, maps.expand(chunks, *maps.shape)).flatten(0, 1)


def mlp(inputs: int, hidden: tuple[int, ...], dropout: float) -> nn.Sequential:
    """Linear, batch normalization, ReLU and dropout per hidden size."""
    layers: list[nn.Module] = []
    for before, after in zip((inputs, *hidden), hidden, strict=False):
        layers += [nn.Linear(before, after), nn.BatchNorm1d(after), nn.ReLU()]
        layers += [nn.Dropout(dropout)] if dropout else []
    return nn.Sequential(*layers)


def pairwise(x: Tensor) -> Tensor:
    """The sum of inner products of all pairs of fields: (B, F, D) to (B,)."""
    pairs: Tensor = _Pairwise.apply(x)  # type: ignore[no-untyped-call]
    return pairs


def pairwise_of_sums(total: Tensor, squares: Tensor) -> Tensor:
    """The same, from the sum over fields (B, D) and the sum of squares times -1/2, (B, 1)."""
    return total.square().sum(1).mul(0.5) + squares.squeeze(1)


class _Pairwise(torch.autograd.Function):
    """(sum^2 - sum of squares) / 2, with the simple gradient sum - x."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        """(B, F, D) to (B,)."""
        total = x.sum(1)
        ctx.save_for_backward(x, total)
        pairs: Tensor = 0.5 * (total.square() - x.square().sum(1)).sum(1)
        return pairs

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        """(B,) to (B, F, D)."""
        x, total = ctx.saved_tensors
        grad: Tensor = (total.unsqueeze(1) - x).mul_(grads[0][:, None, None])
        return grad
