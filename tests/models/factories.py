"""Factories as users write them, one module each."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

import fieldwise as fw


class Base(nn.Module):
    """One table per field; `vectors` gets ids (B, places)."""

    def __init__(self, schema: fw.Schema, width: int = 4) -> None:
        super().__init__()
        self.lengths = list(schema.lengths)
        self.tables = nn.ModuleList(nn.Embedding(field.cardinality, width) for field in schema.fields)
        self.size = width * len(schema)

    def vectors(self, ids: Tensor) -> Tensor:
        parts = []
        for table, own in zip(self.tables, ids.split(self.lengths, 1), strict=True):
            there = (own >= 0).unsqueeze(2)  # lists end in -1
            parts.append((table(own.clamp(min=0)) * there).sum(1) / there.sum(1).clamp(min=1))
        return torch.cat(parts, 1)


class Deep(Base):
    """Batch norm and a hidden layer over all fields."""

    def __init__(self, schema: fw.Schema, width: int = 4, hidden: int = 8) -> None:
        super().__init__(schema, width)
        self.deep = nn.Sequential(
            nn.BatchNorm1d(self.size), nn.Linear(self.size, hidden), nn.ReLU(), nn.Linear(hidden, 1)
        )

    def forward(self, ids: Tensor) -> Tensor:
        out: Tensor = self.deep(self.vectors(ids)).squeeze(1)
        return out


class Named(nn.Module):
    """Takes a mapping, has first-order weights, ends in a sigmoid, and returns (B, 1)."""

    def __init__(self, schema: fw.Schema) -> None:
        super().__init__()
        pairs = [(field.name, field.cardinality) for field in schema.fields if field.length == 1]
        self.tables = nn.ModuleDict({name: nn.Embedding(rows, 4) for name, rows in pairs})
        self.first = nn.ModuleDict({name: nn.Embedding(rows, 1) for name, rows in pairs})
        self.lists = nn.ModuleDict(
            {f.name: nn.EmbeddingBag(f.cardinality + 1, 4, padding_idx=0) for f in schema.fields if f.length > 1}
        )
        self.cross = nn.Linear(4 * len(schema), 4 * len(schema))
        self.out = nn.Linear(4 * len(schema), 1)

    def forward(self, ids: Mapping[str, Tensor]) -> Tensor:
        parts = [table(ids[name]) for name, table in self.tables.items()]
        v = torch.cat(parts + [bag(ids[name] + 1) for name, bag in self.lists.items()], 1)
        first = torch.stack([table(ids[name]) for name, table in self.first.items()]).sum(0)
        return torch.sigmoid(self.out(v * self.cross(v) + v) + first)


class Tied(Base):
    """Two names of one table, a buffer that a state_dict leaves out, and values read while it is built."""

    scale: Tensor

    def __init__(self, schema: fw.Schema) -> None:
        super().__init__(schema)
        self.again = nn.Embedding(schema.cardinalities[0], 4, sparse=True)
        first = self.tables[0]
        assert isinstance(first, nn.Embedding)
        self.again.weight = first.weight
        self.register_buffer("scale", torch.full((), 3.0), persistent=False)
        self.out = nn.Linear(self.size + 4, 1)

    def forward(self, ids: Tensor) -> Tensor:
        v = torch.cat([self.vectors(ids), self.again(ids[:, 0])], 1) * self.scale
        out: Tensor = self.out(v).squeeze(1)
        return out


def deep(schema: fw.Schema, width: int = 4, hidden: int = 8) -> nn.Module:
    """A deep model."""
    return Deep(schema, width, hidden)


def named(schema: fw.Schema) -> nn.Module:
    """A model that takes a mapping."""
    return Named(schema)


def tied(schema: fw.Schema) -> nn.Module:
    """A model with a tied table."""
    return Tied(schema)


def reading(schema: fw.Schema, width: int = 4) -> nn.Module:
    """A model that reads a value while it is built, which the meta device does not have."""
    found = Deep(schema, width)
    first = found.deep[1]
    assert isinstance(first, nn.Linear)
    float(first.weight.detach().sum())
    return found


def bare(schema: fw.Schema) -> nn.Module:
    """One stacked table with offsets, as RecBole has."""
    return Stacked(schema)


class Stacked(nn.Module):
    """One table for all fields, read with offsets that are a plain attribute."""

    def __init__(self, schema: fw.Schema) -> None:
        super().__init__()
        starts = [0, *schema.cardinalities[:-1]]
        self.offsets = torch.tensor(starts).cumsum(0)
        self.table = nn.Embedding(sum(schema.cardinalities), 4)
        self.out = nn.Linear(4 * len(schema), 1)

    def forward(self, ids: Tensor) -> Tensor:
        out: Tensor = self.out(self.table(ids + self.offsets).flatten(1)).squeeze(1)
        return out


FACTORIES: dict[str, Any] = {"deep": deep, "named": named, "tied": tied, "reading": reading, "stacked": bare}
