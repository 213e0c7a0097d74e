"""The interface of base models: settings that build a model whose columns can be gated and removed."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol

import torch
from pydantic import Field
from torch import Tensor, nn

from fieldwise.core.mask import Mask
from fieldwise.core.records import Size
from fieldwise.core.schema import Layout, Schema
from fieldwise.core.settings import Settings
from fieldwise.models.fields import needed_fields
from fieldwise.models.gating import times_gate
from fieldwise.models.vectors import Vectors
from fieldwise.tables.embedding import FieldEmbedding

Slices = dict[str, dict[int, Tensor]]
"""Entries that a compact model keeps, by name and axis of a weight."""


class Head(nn.Module, ABC):
    """Maps the flat embedding to logits."""

    takes_padded: bool = False
    """Whether it begins with a `Lift`, so that its fields may also come padded with zeros."""

    @abstractmethod
    def forward(self, v: Tensor) -> Tensor:
        """Logits (B,) of the embedding v (B, S)."""

    @abstractmethod
    def slices(self, mask: Mask) -> Slices:
        """The entries of each weight to keep for a mask's columns."""

    def output_bias(self) -> nn.Parameter | None:
        """The bias that is added to every logit; None, the default, if the head has none."""
        return None


class FieldTables(Protocol):
    """The tables of a model, by field."""

    @property
    def layout(self) -> Layout:
        """The fields and their widths."""

    def table(self, field: int) -> Tensor:
        """The table of one field, (cardinality, width)."""

    def span(self, field: int) -> tuple[nn.Parameter, slice]:
        """The weight that contains one field, and the field's rows in it."""

    def parameters(self) -> Iterator[nn.Parameter]:
        """All weights."""


@contextmanager
def constant(module: nn.Module) -> Iterator[None]:
    """A block whose operations compute no gradients of the module's weights, not even if they have their own."""
    weights = [weight for weight in module.parameters() if weight.requires_grad]
    for weight in weights:
        weight.requires_grad_(False)
    try:
        yield
    finally:
        for weight in weights:
            weight.requires_grad_(True)


class CTRModel(nn.Module, ABC):
    """Logits of ids, with tables whose columns can be gated and removed."""

    settings: "Model"
    schema: Schema
    """The fields whose ids it takes."""
    layout: Layout
    """The columns of its tables."""
    linear: Layout | None = None
    """The first-order weights, if they belong to fields."""
    same_steps: bool = False
    """Whether all training steps run the same kernels on the same tensors."""

    @abstractmethod
    def forward(self, ids: Tensor, gate: Tensor | None = None) -> Tensor:
        """Logits (B,) of ids (B, places); a gate or mask (S,) multiplies the columns."""

    @abstractmethod
    def gated(self, ids: Tensor, gate: Tensor) -> Tensor:
        """Logits (B,) with a gradient only for the gate (S,)."""

    @abstractmethod
    def slopes(self, ids: Tensor, loss: Callable[[Tensor], Tensor], masks: Tensor) -> Tensor:
        """Each row's derivative of the loss of the logits by every column's mask, at these masks (S,); (B, S).

        With more masks than columns, first-order weights follow the columns.
        """

    if TYPE_CHECKING:

        @property
        def embedding(self) -> FieldTables:
            """The tables."""

    def start_at(self, rate: float) -> None:
        """Lets a new model predict this click rate, if it has a bias to set; a user's own module stays as it is."""

    @property
    @abstractmethod
    def needs(self) -> tuple[str, ...]:
        """Fields that a prediction reads; ids of all others are ignored."""

    @abstractmethod
    def size(self) -> Size:
        """The number of weights, by part of the model."""


class HeadModel(CTRModel):
    """Embedding and head, with first-order weights if the base model has them."""

    settings: "OwnModel"
    embedding: FieldEmbedding
    same_steps = True

    def __init__(self, settings: "OwnModel", layout: Layout, linear: Layout | None, head: Head) -> None:
        super().__init__()
        self.settings, self.schema, self.layout, self.linear = settings, layout.schema, layout, linear
        self.embedding = FieldEmbedding(layout, settings.init)
        self.first_order = FieldEmbedding(linear, settings.init) if linear and linear.columns else None
        self.vectors = Vectors(layout)
        self.head = head

    def forward(self, ids: Tensor, gate: Tensor | None = None) -> Tensor:
        """Logits (B,) of ids (B, places); a gate or mask (S,) or (B, S) multiplies the embedding.

        A gate with one more value for each field with first-order weights multiplies those too.
        """
        if gate is None:
            return self.logits(ids, self.embedding(ids))
        return self.of_columns(ids, self.columns(ids, gate.shape[-1]) * gate)

    def columns(self, ids: Tensor, count: int) -> Tensor:
        """The columns that a search may drop, (B, count): the embedding, and first-order weights if S < count."""
        v: Tensor = self.embedding(ids)  # (B, S)
        if count == v.shape[1]:
            return v
        assert self.first_order is not None
        return torch.cat([v, self.first_order(ids)], 1)

    def of_columns(self, ids: Tensor, columns: Tensor) -> Tensor:
        """Logits (B,) of what `columns` returned."""
        if columns.shape[1] == self.layout.columns:
            return self.logits(ids, columns)
        v, first = columns.split([self.layout.columns, columns.shape[1] - self.layout.columns], 1)
        logits: Tensor = self.head(self.vectors(ids, v)) + first.sum(1)
        return logits

    def gated(self, ids: Tensor, gate: Tensor) -> Tensor:
        """Logits (B,) with a gradient only for the gate (S,), which may include first-order weights."""
        with torch.no_grad():
            columns = self.columns(ids, len(gate))
        with constant(self.head):
            return self.of_columns(ids, times_gate(columns, gate))

    def slopes(self, ids: Tensor, loss: Callable[[Tensor], Tensor], masks: Tensor) -> Tensor:
        """Each row's derivative of the loss of the logits by every column's mask, at these masks (n,); (B, n)."""
        with torch.no_grad():
            v = self.columns(ids, len(masks))
            masked = v * masks
        masked.requires_grad_()
        (grad,) = torch.autograd.grad(loss(self.of_columns(ids, masked)), masked)
        return grad * v

    def logits(self, ids: Tensor, v: Tensor) -> Tensor:
        """Logits (B,) of ids (B, places) whose embedding is v (B, S)."""
        logits: Tensor = self.head(self.vectors(ids, v))
        return logits if self.first_order is None else logits + self.first_order(ids).sum(1)

    @torch.no_grad()
    def start_at(self, rate: float) -> None:
        """Sets the output's bias to the log-odds of a click rate, if the settings ask for it and the head has one."""
        bias = self.head.output_bias()
        if bias is not None and self.settings.output_bias == "log-odds":
            bias.fill_(math.log(rate / (1 - rate)))

    @property
    def needs(self) -> tuple[str, ...]:
        """Fields that a prediction reads; ids of all others are ignored."""
        return needed_fields(self.layout, self.linear)

    def size(self) -> Size:
        """The number of weights, by part of the model."""
        return Size(
            columns=self.layout.columns,
            embedding=self.layout.params,
            first_order=self.linear.params if self.linear else 0,
            dense=sum(weight.numel() for weight in self.head.parameters()),
        )


class Model(Settings, ABC):
    """Settings of a base model, of the library or of a user's factory."""

    @abstractmethod
    def layout(self, schema: Schema) -> Layout:
        """The columns of the full model."""

    def linear(self, schema: Schema) -> Layout | None:
        """The first-order weights of the full model, if they belong to fields."""
        return None

    @abstractmethod
    def new(self, schema: Schema) -> CTRModel:
        """A full model, initialized from torch's global random state."""

    @abstractmethod
    def fresh(self, schema: Schema, mask: Mask) -> CTRModel:
        """A model with the mask's columns, initialized from torch's global random state."""

    @abstractmethod
    def weights(self, schema: Schema) -> nn.Module:
        """A module with the full model's weights, whose number can be counted on the meta device."""


class OwnModel(Model):
    """Settings of a base model of the library."""

    width: int = Field(16, ge=1, le=65_536)
    """Width of the full model's tables, 1 to 65,536; a field with fewer ids has one column per id."""
    init: float = Field(0.01, gt=0)
    """Standard deviation of new embeddings, above 0."""
    output_bias: Literal["log-odds", "drawn"] = "log-odds"
    """Initial bias of the output: log-odds of the training labels, or drawn like other weights, as in the paper."""

    int8_factor: ClassVar[float] = 2.0
    """Factor of what int8 saves where a search chooses between bits and columns, by trials (docs/log.md): retraining
    may make up for more of what dropped columns lose."""

    @abstractmethod
    def head(self, layout: Layout) -> Head:
        """A new head for these columns."""

    def has_first_order(self) -> bool:
        """Whether every id also has a first-order weight, in addition to its embedding."""
        return True

    def linear(self, schema: Schema) -> Layout | None:
        """The first-order weights of the full model, if it has them."""
        return Layout(schema, (1,) * len(schema)) if self.has_first_order() else None

    def build(self, layout: Layout, linear: Layout | None = None) -> HeadModel:
        """A new model for these columns, initialized from torch's global random state.

        `linear` has width 1 for fields with first-order weights and 0 for those without; by default all have them.
        """
        if linear is None:
            linear = self.linear(layout.schema)
        return HeadModel(self, layout, linear, self.head(layout.vectors))

    def layout(self, schema: Schema) -> Layout:
        """The columns of the full model."""
        return schema.layout(self.width)

    def new(self, schema: Schema) -> HeadModel:
        """A full model, initialized from torch's global random state."""
        return self.build(self.layout(schema))

    def fresh(self, schema: Schema, mask: Mask) -> HeadModel:
        """A model with the mask's columns, initialized from torch's global random state."""
        mask = mask.on(self.layout(schema))
        return self.build(mask.layout, mask.linear)

    def weights(self, schema: Schema) -> nn.Module:
        """A module with the full model's weights, whose number can be counted on the meta device."""
        return self.new(schema)
