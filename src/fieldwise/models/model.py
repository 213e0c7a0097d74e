"""The interface of base models: settings that build a CTRModel, a head over an optionally gated embedding."""

from abc import ABC, abstractmethod

import torch
from pydantic import Field
from torch import Tensor, nn

from fieldwise.core.mask import Mask
from fieldwise.core.records import Size
from fieldwise.core.schema import Layout
from fieldwise.core.settings import Settings
from fieldwise.tables.embedding import FieldEmbedding

Slices = dict[str, dict[int, Tensor]]
"""Entries that a compact model keeps, by name and axis of a weight."""


class Head(nn.Module, ABC):
    """Maps the flat embedding to logits."""

    @abstractmethod
    def forward(self, v: Tensor) -> Tensor:
        """Logits (B,) of the embedding v (B, S)."""

    @abstractmethod
    def slices(self, mask: Mask) -> Slices:
        """The entries of each weight to keep for a mask's columns."""


class CTRModel(nn.Module):
    """Embedding and head, with first-order weights if the base model has them."""

    def __init__(self, settings: "Model", layout: Layout, linear: Layout | None, head: Head) -> None:
        super().__init__()
        self.settings, self.layout, self.linear = settings, layout, linear
        self.embedding = FieldEmbedding(layout, settings.init)
        self.first_order = FieldEmbedding(linear, settings.init) if linear and linear.columns else None
        self.head = head

    def forward(self, ids: Tensor, gate: Tensor | None = None) -> Tensor:
        """Logits (B,) of ids (B, places); a gate or mask (S,) or (B, S) multiplies the embedding."""
        v = self.embedding(ids)  # (B, S)
        return self.logits(ids, v if gate is None else v * gate)

    def logits(self, ids: Tensor, v: Tensor) -> Tensor:
        """Logits (B,) of ids (B, places) whose embedding is v (B, S)."""
        logits: Tensor = self.head(v)
        return logits if self.first_order is None else logits + self.first_order(ids).sum(1)

    @property
    def needs(self) -> tuple[str, ...]:
        """Fields that a prediction reads; ids of all others are ignored."""
        return needed_fields(self.layout, self.linear)

    def size(self) -> Size:
        """The number of weights, by part of the model."""
        first = self.linear.params if self.linear else 0
        everything = sum(weight.numel() for weight in self.parameters())
        return Size(
            columns=self.layout.columns,
            embedding=self.layout.params,
            first_order=first,
            dense=everything - first - self.layout.params,
        )


class Model(Settings):
    """Settings of a base model; `build` creates the model."""

    width: int = Field(16, ge=1, le=65_536)
    """Width of the full model's tables, 1 to 65,536; a field with fewer ids has one column per id."""
    init: float = Field(0.01, gt=0)
    """Standard deviation of new embeddings, above 0."""

    @abstractmethod
    def head(self, layout: Layout) -> Head:
        """A new head for these columns."""

    def has_first_order(self) -> bool:
        """Whether every id also has a first-order weight, in addition to its embedding."""
        return True

    def build(self, layout: Layout, linear: Layout | None = None) -> CTRModel:
        """A new model for these columns, initialized from torch's global random state.

        `linear` has width 1 for fields with first-order weights and 0 for those without; by default all have them.
        """
        if linear is None and self.has_first_order():
            linear = Layout(layout.schema, (1,) * len(layout.schema))
        return CTRModel(self, layout, linear, self.head(layout))


def needed_fields(layout: Layout, linear: Layout | None) -> tuple[str, ...]:
    """Names of the fields that have columns or first-order weights."""
    first = linear.widths if linear else (0,) * len(layout.widths)
    rows = zip(layout.schema.names, layout.widths, first, strict=True)
    return tuple(name for name, width, own in rows if width or own)


def kept_fields(mask: Mask, each: int) -> Tensor:
    """Indices of the inputs to keep, for layers with `each` inputs per field: those of fields that keep a column."""
    before = [j for j, width in enumerate(mask.full.widths) if width]
    places = [place for place, j in enumerate(before) if mask.widths[j]]
    return (torch.tensor(places)[:, None] * each + torch.arange(each)).flatten()


def live_fields(layout: Layout) -> list[int]:
    """Indices of the fields with at least one column."""
    return [j for j, width in enumerate(layout.widths) if width]
