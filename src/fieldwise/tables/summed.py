"""Heads that depend on the fields only through sums, for which there are faster forward passes."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Protocol

from torch import Tensor, nn

from fieldwise.tables.embedding import FieldEmbedding


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


class HeadOverTables(Protocol):
    """A model with a head over one embedding, with or without first-order weights."""

    @property
    def head(self) -> nn.Module:
        """Maps the embedding to logits."""

    @property
    def embedding(self) -> FieldEmbedding:
        """The tables of all fields."""

    @property
    def first_order(self) -> FieldEmbedding | None:
        """One weight per id, if the model has them."""

    def __call__(self, ids: Tensor, gate: Tensor | None = None) -> Tensor:
        """Logits (B,) of ids (B, F); a gate (S,) multiplies the embedding."""


Forward = Callable[..., Tensor]
"""Logits (B,) of ids (B, F); an optional gate (S,) multiplies the embedding."""
