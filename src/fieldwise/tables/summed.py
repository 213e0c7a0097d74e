"""Heads that depend on the fields only through sums, for which there are faster forward passes."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor, nn

from fieldwise.core.schema import Layout
from fieldwise.tables.embedding import FieldEmbedding, by_width


class SummedHead(ABC):
    """A head that depends on the fields only through sums of their lifts, of the lifts' squares, and of linear maps."""

    common: int
    """The common width that every field is lifted to."""
    only_pairs: bool = False
    """Whether its logits follow from the pairwise products of the lifts alone, by `of_pairs`."""

    @abstractmethod
    def maps(self, fields: list[int]) -> Tensor:
        """Maps of fields of equal width, (fields, width, K); the first `common` of K are the lifts."""

    @abstractmethod
    def of_sums(self, sums: Tensor) -> Tensor:
        """Logits (B,) from the sums over all fields (B, K + 1), the last that of the lifts' squares times -1/2."""

    def of_pairs(self, pairs: Tensor) -> Tensor:
        """Logits (B,) from the pairwise products of the lifts (B,)."""
        raise NotImplementedError


class SharedMaps:
    """The maps of a head whose fields are columns of the data, by the tiers that share their vectors."""

    def __init__(self, head: SummedHead, layout: Layout) -> None:
        self._head, self._groups = head, list(by_width(layout.vectors).values())
        starts = layout.vectors.starts
        columns = [column for fields in self._groups for j in fields for column in range(starts[j], starts[j + 1])]
        rows = torch.empty(len(columns), dtype=torch.long)
        rows[columns] = torch.arange(len(columns))
        self._rows = rows[torch.from_numpy(layout.targets)].split(layout.widths)
        """For each field, the rows of its columns among the maps of all groups."""
        self._all: Tensor

    def read(self) -> None:
        """Takes the maps as they are now."""
        self._all = torch.cat([self._head.maps(fields).flatten(0, 1) for fields in self._groups])

    def maps(self, fields: list[int]) -> Tensor:
        """Maps of fields of equal width, (fields, width, K)."""
        rows = torch.cat([self._rows[j] for j in fields])
        found: Tensor = self._all.index_select(0, rows).unflatten(0, (len(fields), -1))
        return found


class ReadTiers(Protocol):
    """Knows which tiers the rows of a batch read."""

    def reads(self, ids: Tensor, fields: list[int]) -> Tensor:
        """Whether a row of the batch reads each of the fields, (B, fields)."""


class HeadOverTables(Protocol):
    """A model with a head over one embedding, with or without first-order weights."""

    @property
    def head(self) -> nn.Module:
        """Maps the embedding to logits."""

    @property
    def embedding(self) -> FieldEmbedding:
        """The tables of all fields."""

    @property
    def vectors(self) -> ReadTiers:
        """Adds the columns of tiers."""

    @property
    def first_order(self) -> FieldEmbedding | None:
        """One weight per id, if the model has them."""

    def __call__(self, ids: Tensor, gate: Tensor | None = None) -> Tensor:
        """Logits (B,) of ids (B, F); a gate (S,) multiplies the embedding."""


Forward = Callable[..., Tensor]
"""Logits (B,) of ids (B, F); an optional gate (S,) multiplies the embedding."""
