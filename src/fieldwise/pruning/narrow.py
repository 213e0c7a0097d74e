"""Tables that store only live columns, with outputs of the full width.

Forward code works with them as with the modules they replace. Weights and a JSON description restore them.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from fieldwise.core.schema import Layout, Schema
from fieldwise.tables.embedding import FieldEmbedding

Description = dict[str, Any]
Table = nn.Embedding | nn.EmbeddingBag


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
        self.table = zeros_of(narrow).to(home(full))
        with torch.no_grad():
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
        self._table = (_hollow(table),)  # in a tuple, so that it is no submodule and has no weights to store

    def full_of_zeros(self) -> nn.Module:
        """Return the table that this one replaces, with zeros."""
        found = self._table[0]
        if isinstance(found, Layout):
            return zeros_of(found).to(self.like.device)
        table: nn.Module = shallow(found)
        table.weight = nn.Parameter(torch.zeros_like(found.weight, device=self.like.device), found.weight.requires_grad)
        return table

    def forward(self, input: Tensor, offsets: Tensor | None = None, per_sample_weights: Any = None) -> Tensor:  # noqa: A002
        """Return zeros; the values of ids are not used."""
        if not self._pools:
            return self.like.new_zeros((*input.shape, self.embedding_dim))
        bags = input.shape[0] if offsets is None else offsets.shape[0] - int(self._last)
        return self.like.new_zeros((bags, self.embedding_dim))

    def description(self) -> Description:
        """Return everything except weights that defines this module."""
        return {"kind": "table", "kept": []}


def _hollow(table: Table | FieldEmbedding) -> Any:
    """Return what describes a table's shape without its memory: a layout, or a table on the meta device."""
    if isinstance(table, FieldEmbedding):
        return table.layout
    twin = shallow(table)
    twin.weight = nn.Parameter(table.weight.detach().to("meta"), requires_grad=table.weight.requires_grad)
    return twin


def zeros_of(layout: Layout) -> FieldEmbedding:
    """Return an embedding of zeros."""
    with torch.random.fork_rng(devices=[]), torch.no_grad(), torch.device("cpu"):
        found = FieldEmbedding(layout, 0.0)
        for table in found.parameters():
            table.zero_()  # 0.0 times a draw may be -0.0
    return found
