"""AutoInt (Song et al. 2019): self-attention between lifted fields."""

from typing import ClassVar

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn import functional

from fieldwise.core.mask import Mask
from fieldwise.core.schema import Layout
from fieldwise.models.attention import FEWEST, attend, padding
from fieldwise.models.attention_few import WIDEST, attend_few
from fieldwise.models.fields import kept_fields, live_fields
from fieldwise.models.layers import Lift, mlp
from fieldwise.models.model import Head, OwnModel, Slices


class AutoInt(OwnModel):
    """Layers of multi-head self-attention with residual and ReLU, and an MLP if `hidden` is set."""

    int8_factor: ClassVar[float] = 16.0  # half of the columns are as good as all, after retraining

    common: int = Field(16, ge=1)
    """Common width that every field is lifted to, at least 1."""
    layers: int = Field(3, ge=1, le=1000)
    """Number of attention layers, from 1 to 1,000."""
    heads: int = Field(2, ge=1, le=1000)
    """Heads per layer, from 1 to 1,000; must divide `attention`."""
    attention: int = Field(16, ge=1)
    """Width of a field after each attention layer, over all heads, at least 1."""
    hidden: tuple[int, ...] = ()
    """Layer sizes of the MLP in parallel to the attention; none by default."""
    dropout: float = Field(0.0, ge=0, lt=1)
    """Dropout probability after each hidden layer of the MLP, in [0, 1)."""

    @model_validator(mode="after")
    def _heads_divide(self) -> "AutoInt":
        if self.attention % self.heads:
            raise ValueError(f"heads ({self.heads}) must divide attention ({self.attention})")
        return self

    def head(self, layout: Layout) -> Head:
        """A new head for these columns."""
        return AutoIntHead(layout, self)


class Attention(nn.Module):
    """Multi-head self-attention over fields: (B, F, before) to (B, F, after)."""

    def __init__(self, before: int, after: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.width = after // heads  # of a head
        self.query = nn.Linear(before, after, bias=False)
        self.key = nn.Linear(before, after, bias=False)
        self.value = nn.Linear(before, after, bias=False)
        self.residual = nn.Linear(before, after, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Attend between fields. Products are not scaled, as in the original."""
        query, key, value = (
            part(x).unflatten(2, (self.heads, -1)).transpose(1, 2)  # (B, heads, F, D / heads)
            for part in (self.query, self.key, self.value)
        )
        weights = torch.softmax(query @ key.transpose(2, 3), dim=3)  # (B, heads, F, F)
        mixed = (weights @ value).transpose(1, 2).flatten(2)  # (B, F, D)
        return torch.relu(mixed + self.residual(x))

    def is_plain(self) -> bool:
        """Whether nobody replaced or hooked the layer or a part of it, so that `maps` says all about it."""
        parts = (self.query, self.key, self.value, self.residual)
        return unchanged(self, Attention) and all(unchanged(part, nn.Linear) for part in parts)

    def maps(self) -> Tensor:
        """The weights of queries, keys, values and the residual, (heads, 4, after / heads, before)."""
        parts = (self.query, self.key, self.value, self.residual)
        return torch.stack([part.weight.unflatten(0, (self.heads, -1)) for part in parts], 1)


def unchanged(module: nn.Module, kind: type[nn.Module]) -> bool:
    """Whether a module is of exactly this type, and a call of it does only what its type says."""
    hooks = (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks)
    return type(module) is kind and not any(hooks) and "forward" not in vars(module)


class AutoIntHead(Head):
    """Lift, attention layers and a linear output.

    A field of width 0 stays in the attention as zeros. It reads no ids, and the softmax has the same inputs as for the
    masked field.
    """

    takes_padded = True

    def __init__(self, layout: Layout, settings: AutoInt) -> None:
        super().__init__()
        fields, live = len(layout.schema), live_fields(layout)
        self._common = settings.common
        self.register_buffer("live", torch.tensor(live), persistent=False)
        self.lift = Lift(layout, settings.common)
        befores = (settings.common, *[settings.attention] * (settings.layers - 1))
        self.attention = nn.Sequential(*(Attention(b, settings.attention, settings.heads) for b in befores))
        self.out = nn.Linear(fields * settings.attention, 1)
        self.deep = None
        if settings.hidden:
            body = mlp(len(live) * settings.common, settings.hidden, settings.dropout)
            self.deep = nn.Sequential(*body, nn.Linear(settings.hidden[-1], 1, bias=False))

    def forward(self, v: Tensor) -> Tensor:
        """Logits (B,) of the embedding v (B, S)."""
        x = self.lift(v)  # (B, F, D)
        logits = self._attended(x)
        if self.deep is None:
            return logits
        live = self.get_buffer("live")
        deep: Tensor = self.deep((x if len(live) == x.shape[1] else x[:, live]).flatten(1))
        return logits + deep.squeeze(1)

    def _attended(self, x: Tensor) -> Tensor:
        """Logits (B,) of the fields (B, F, D) after all layers."""
        fields, layers = x.shape[1], self._own_layers(x)
        if not layers:
            logits: Tensor = self.out(self.attention(x).flatten(1)).squeeze(1)
            return logits
        more = (0, padding(fields) if fields >= FEWEST else 0)
        if fields >= FEWEST:
            x = functional.pad(x.transpose(1, 2), more)  # (B, D, F)
            for layer in layers:
                x = attend(x, layer.maps(), fields)
            x = x.flatten(1)
        else:
            x = x.permute(2, 1, 0).contiguous()  # (D, F, B)
            for layer in layers:
                x = attend_few(x, layer.maps())
            x = x.flatten(0, 1).t()
        weight = functional.pad(self.out.weight.unflatten(1, (fields, -1)).transpose(1, 2), more).flatten(1)
        return functional.linear(x, weight, self.out.bias).squeeze(1)

    def _own_layers(self, x: Tensor) -> list[Attention]:
        """The layers, if they may be computed in the library's own way; else none.

        That is for training steps on a CPU, and reads weights without calling modules. So modules that someone replaced
        or hooked are called, as torch does.
        """
        if x.device.type != "cpu" or torch.is_autocast_enabled("cpu") or not torch.is_grad_enabled():
            return []
        layers = [layer for layer in self.attention if isinstance(layer, Attention)]
        fast = x.shape[1] >= FEWEST or all(layer.width <= WIDEST for layer in layers)
        whole = len(layers) == len(self.attention) and all(layer.is_plain() for layer in layers)
        around = unchanged(self.attention, nn.Sequential) and unchanged(self.out, nn.Linear)
        return layers if fast and whole and around else []

    def slices(self, mask: Mask) -> Slices:
        """Rows of the lift are sliced by column, inputs of the MLP by field."""
        slices: Slices = {"lift.weight": {0: torch.from_numpy(mask.indices)}}
        if self.deep is not None:
            slices["deep.0.weight"] = {1: kept_fields(mask, self._common)}
        return slices

    def output_bias(self) -> nn.Parameter:
        """The bias of the output."""
        return self.out.bias
