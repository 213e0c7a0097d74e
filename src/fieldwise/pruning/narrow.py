"""Modules that store only live weights, with inputs and outputs of the full width.

Forward code works with them as with the modules they replace. Weights and a JSON description restore them.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from fieldwise.core.schema import Layout, Schema
from fieldwise.pruning.sites import Table
from fieldwise.tables.embedding import FieldEmbedding

Description = dict[str, Any]
Norm = nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d
Conv = nn.Conv1d | nn.Conv2d | nn.Conv3d


def shallow(module: nn.Module) -> Any:
    """Return a new module with the same attributes and no hooks; tensors are shared, containers are not."""
    twin = module.__class__.__new__(module.__class__)
    twin.__dict__.update(module.__dict__)
    for name in ("_parameters", "_buffers", "_modules"):
        twin.__dict__[name] = dict(module.__dict__[name])
    for name in [
        name for name in module.__dict__ if name.endswith(("_hooks", "_hooks_with_kwargs", "_hooks_always_called"))
    ]:
        twin.__dict__[name] = type(module.__dict__[name])()
    return twin


def renewed(weight: Tensor, like: Tensor) -> nn.Parameter:
    """Return a new parameter with a copy of the values."""
    return nn.Parameter(weight.detach().clone().contiguous(), requires_grad=like.requires_grad)


def home(module: nn.Module) -> torch.device:
    """Return the device for a module's constants: that of its weights, unless they are on the meta device."""
    device = next((tensor.device for tensor in (*module.parameters(), *module.buffers())), torch.device("cpu"))
    return torch.device("cpu") if device.type == "meta" else device


class Scatter(nn.Module):
    """Scatters live features to the full size along one axis; the rest is 0."""

    places: Tensor

    def __init__(self, live: Sequence[int], size: int, axis: int = -1) -> None:
        super().__init__()
        self.live, self.size, self.axis = list(live), size, axis
        places = torch.full((size,), len(self.live), dtype=torch.long, device="cpu")  # not the default device
        places[self.live] = torch.arange(len(self.live), device="cpu")
        self.register_buffer("places", places, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Map (.., live, ..) to (.., size, ..)."""
        if len(self.live) == self.size:
            return x
        after = -self.axis - 1 if self.axis < 0 else x.dim() - 1 - self.axis
        padded = functional.pad(x, [0, 0] * after + [0, 1])
        return padded.index_select(self.axis, self.places)


class Gather(nn.Module):
    """Gathers the live features of an input along one axis."""

    places: Tensor

    def __init__(self, live: Sequence[int], size: int, axis: int = -1) -> None:
        super().__init__()
        self.live, self.size, self.axis = list(live), size, axis
        self.register_buffer("places", torch.tensor(self.live, dtype=torch.long, device="cpu"), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Map (.., size, ..) to (.., live, ..)."""
        return x if len(self.live) == self.size else x.index_select(self.axis, self.places)


class NarrowTable(nn.Module):
    """A table of the kept columns, followed by a scatter to the full width."""

    def __init__(self, table: Table, kept: Sequence[int], weight: nn.Parameter | None = None) -> None:
        super().__init__()
        rows, width = table.weight.shape
        self.num_embeddings, self.embedding_dim, self.padding_idx = rows, width, table.padding_idx
        inner = shallow(table)
        inner.weight = weight if weight is not None else renewed(kept_columns(table, kept), table.weight)
        inner.embedding_dim = len(kept)
        self.table = inner
        self.scatter = Scatter(kept, width).to(home(table))
        self.train(table.training)

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        """Return what the full table returns, with zeros in dropped columns."""
        found: Tensor = self.scatter(self.table(*args, **kwargs))
        return found

    def description(self) -> Description:
        """Return everything except weights that defines this module."""
        return {"kind": "table", "kept": self.scatter.live}


def kept_columns(table: Table, kept: Sequence[int]) -> Tensor:
    """Return columns of a table as its forward reads them, with `max_norm` applied to full rows."""
    weight = table.weight.detach()
    if table.max_norm is not None and not weight.is_meta:
        norms = weight.norm(table.norm_type, 1, keepdim=True)
        weight = torch.where(norms > table.max_norm, weight * (table.max_norm / (norms + 1e-7)), weight)
    return weight[:, list(kept)]


class NarrowFields(nn.Module):
    """A `FieldEmbedding` of the kept columns, followed by a scatter to the full width."""

    def __init__(self, full: FieldEmbedding, kept: Sequence[int]) -> None:
        super().__init__()
        starts, self.layout = full.layout.starts, full.layout
        own = [[k - start for k in kept if start <= k < end] for start, end in pairwise(starts)]
        narrow = Layout(Schema(full.layout.schema.fields), tuple(len(columns) for columns in own))
        with torch.random.fork_rng(devices=[]), torch.no_grad(), torch.device("cpu"):
            self.table = FieldEmbedding(narrow, 0.0).to(home(full))
            for j, columns in enumerate(own):
                if columns and not full.table(j).is_meta:
                    self.table.table(j).copy_(full.table(j)[:, columns])
        self.scatter = Scatter(kept, full.layout.columns).to(home(full))

    def forward(self, ids: Tensor) -> Tensor:
        """Return what the full embedding returns, with zeros in dropped columns."""
        found: Tensor = self.scatter(self.table(ids))
        return found

    def description(self) -> Description:
        """Return everything except weights that defines this module."""
        return {"kind": "table", "kept": self.scatter.live}


class NoTable(nn.Module):
    """Replaces a table that keeps no column: returns zeros of the output's shape."""

    like: Tensor

    def __init__(self, table: Table | FieldEmbedding) -> None:
        super().__init__()
        weight = next(table.parameters())
        self._pools = not isinstance(table, nn.Embedding)
        self._last = isinstance(table, nn.EmbeddingBag) and table.include_last_offset
        if isinstance(table, FieldEmbedding):
            self.embedding_dim = table.layout.columns
        else:
            self.num_embeddings, self.embedding_dim = table.weight.shape
            self.padding_idx = table.padding_idx
        self.register_buffer("like", torch.zeros(0, dtype=weight.dtype, device=home(table)), persistent=False)

    def forward(self, input: Tensor, offsets: Tensor | None = None, per_sample_weights: Any = None) -> Tensor:  # noqa: A002
        """Return zeros; the values of ids are not used."""
        if not self._pools:
            return self.like.new_zeros((*input.shape, self.embedding_dim))
        bags = input.shape[0] if offsets is None else offsets.shape[0] - int(self._last)
        return self.like.new_zeros((bags, self.embedding_dim))

    def description(self) -> Description:
        """Return everything except weights that defines this module."""
        return {"kind": "table", "kept": []}


class NarrowLinear(nn.Module):
    """A linear layer without its dead inputs and outputs."""

    def __init__(self, layer: nn.Linear, inputs: Sequence[int], outputs: Sequence[int], bias: bool) -> None:
        super().__init__()
        self.in_features, self.out_features = layer.in_features, layer.out_features
        self.gather = Gather(inputs, layer.in_features).to(home(layer))
        weight = layer.weight.detach()[list(outputs)][:, list(inputs)]
        self.weight = renewed(weight, layer.weight)
        self.bias = None
        if bias:
            start = weight.new_zeros(len(outputs)) if layer.bias is None else layer.bias.detach()[list(outputs)]
            self.bias = renewed(start, layer.weight)
        self.scatter = Scatter(outputs, layer.out_features).to(home(layer))
        self.train(layer.training)

    def forward(self, x: Tensor) -> Tensor:
        """Return what the full layer returns, with zeros in dead outputs."""
        found: Tensor = self.scatter(functional.linear(self.gather(x), self.weight, self.bias))
        return found

    def description(self) -> Description:
        """Return everything except weights that defines this module."""
        ends = {"inputs": self.gather.live, "outputs": self.scatter.live}
        return {"kind": "linear", **ends, "bias": self.bias is not None}


class NarrowConv(nn.Module):
    """A convolution without its dead channels."""

    def __init__(self, layer: Conv, inputs: Sequence[int], outputs: Sequence[int]) -> None:
        super().__init__()
        inner = shallow(layer)
        inner.weight = renewed(layer.weight.detach()[list(outputs)][:, list(inputs)], layer.weight)
        if layer.bias is not None:
            inner.bias = renewed(layer.bias.detach()[list(outputs)], layer.bias)
        inner.in_channels, inner.out_channels = len(inputs), len(outputs)
        axis = -layer.weight.dim() + 1
        self.gather = Gather(inputs, layer.in_channels, axis).to(home(layer))
        self.layer = inner
        self.scatter = Scatter(outputs, layer.out_channels, axis).to(home(layer))
        self.train(layer.training)

    def forward(self, x: Tensor) -> Tensor:
        """Return what the full layer returns, with zeros in dead outputs."""
        found: Tensor = self.scatter(self.layer(self.gather(x)))
        return found

    def description(self) -> Description:
        """Return everything except weights that defines this module."""
        return {"kind": "conv", "inputs": self.gather.live, "outputs": self.scatter.live}


class NarrowNorm(nn.Module):
    """A batch normalization of the features that a later layer reads."""

    def __init__(self, layer: Norm, live: Sequence[int]) -> None:
        super().__init__()
        inner = shallow(layer)
        for name, weight in layer.named_parameters(recurse=False):
            setattr(inner, name, renewed(weight.detach()[list(live)], weight))
        for name, buffer in layer.named_buffers(recurse=False):
            inner._buffers[name] = (buffer[list(live)] if buffer.dim() else buffer).detach().clone()
        inner.num_features = len(live)
        self.gather = Gather(live, layer.num_features, 1).to(home(layer))
        self.layer = inner
        self.scatter = Scatter(live, layer.num_features, 1).to(home(layer))
        self.train(layer.training)

    def forward(self, x: Tensor) -> Tensor:
        """Return what the full layer returns, with zeros in dead features."""
        found: Tensor = self.scatter(self.layer(self.gather(x)))
        return found

    def description(self) -> Description:
        """Return everything except weights that defines this module."""
        return {"kind": "norm", "live": self.scatter.live}


NARROW = (NarrowTable, NarrowFields, NoTable, NarrowLinear, NarrowConv, NarrowNorm)
