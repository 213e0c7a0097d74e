"""A model with its tables as they are stored, ready to predict; it cannot be trained."""

from typing import Final

import torch
from torch import Tensor, nn

from fieldwise.core.errors import SettingsError
from fieldwise.core.records import Bytes, Size
from fieldwise.core.schema import Layout, Schema
from fieldwise.core.store import FLOAT32, MIXED, Store
from fieldwise.models.factory_model import FactoryModel
from fieldwise.models.fields import needed_fields
from fieldwise.models.model import CTRModel, HeadModel, Model, OwnModel
from fieldwise.models.vectors import Vectors
from fieldwise.pruning.rebuilding import unstored
from fieldwise.tables.stored import stored_embedding

_TABLES: Final = ("embedding.", "first_order.")


class StoredModel(nn.Module):
    """A head over stored tables and first-order weights. Rows are gathered as stored and scaled after the gather."""

    def __init__(self, settings: OwnModel, layout: Layout, linear: Layout | None, store: Store) -> None:
        super().__init__()
        self.settings, self.layout, self.linear, self.store = settings, layout, linear, store
        self.schema = layout.schema
        check_fields(store, self.schema)
        self.embedding = stored_embedding(layout, store)
        self.first_order = stored_embedding(linear, store) if linear and linear.columns else None
        self.vectors = Vectors(layout)
        self.head = settings.head(layout.vectors)

    def forward(self, ids: Tensor) -> Tensor:
        """Logits (B,) of ids (B, places)."""
        logits: Tensor = self.head(self.vectors(ids, self.embedding(ids)))
        return logits if self.first_order is None else logits + self.first_order(ids).sum(1)

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


def check_fields(store: Store | None, schema: Schema) -> None:
    """Refuse a store with fields in int8 that a schema lacks."""
    unknown = sorted(set(store.int8) - set(schema.names)) if store else []
    if unknown:
        names = ", ".join(map(repr, schema.names[:9]))
        raise SettingsError(f"store = '{MIXED} ...': there is no field {unknown[0]!r:.80}. Choose from: {names:.300}.")


def check_store(settings: Model, store: Store | None) -> None:
    """Refuse a store that a base model's tables cannot have."""
    if store not in (None, FLOAT32) and not isinstance(settings, OwnModel):
        raise SettingsError(
            f"store = '{store}': the tables of a factory's model are the module's own. Allowed: float32. Leave it out, "
            "or write budgets in bytes without a type."
        )


def stored(model: CTRModel, store: Store) -> StoredModel:
    """A copy of a trained model with its tables and first-order weights in a store."""
    check_store(model.settings, store)
    assert isinstance(model, HeadModel)
    with torch.random.fork_rng(devices=[]):
        found = StoredModel(model.settings, model.layout, model.linear, store)
    found = found.to(next(model.parameters()).device)
    found.embedding.fill(model.embedding)
    if found.first_order and model.first_order:
        found.first_order.fill(model.first_order)
    found.head.load_state_dict(model.head.state_dict())
    return found.eval()


def store_of(model: CTRModel | StoredModel) -> Store:
    """The store of a model's tables; trained tables are float32."""
    return model.store if isinstance(model, StoredModel) else FLOAT32


def stored_bytes(model: CTRModel | StoredModel) -> Bytes:
    """Bytes of the tensors of a model, by part; scales count with their tables."""
    if isinstance(model, FactoryModel):
        kept = {**model.module.state_dict(keep_vars=True), **unstored(model.module)}
        whole = sum(tensor.nbytes for tensor in {id(tensor): tensor for tensor in kept.values()}.values())
        tables, first = sum(weight.nbytes for weight in model.embedding.parameters()), 4 * model.inside.first_order
        return Bytes(tables=tables, first_order=first, dense=whole - tables - first)
    if isinstance(model, HeadModel):  # not what its tensors hold: rows may be with other processes
        size, one = model.size(), next(model.parameters()).element_size()
        heads = sum(t.numel() * t.element_size() for t in model.head.state_dict().values())
        return Bytes(tables=one * size.embedding, first_order=one * size.first_order, dense=heads)
    sizes = {name: t.numel() * t.element_size() for name, t in model.state_dict().items()}
    tables, first = (sum(n for name, n in sizes.items() if name.startswith(part)) for part in _TABLES)
    scales = sum(n for name, n in sizes.items() if name.startswith(_TABLES) and "scales" in name)
    return Bytes(tables=tables, first_order=first, dense=sum(sizes.values()) - tables - first, scales=scales)
