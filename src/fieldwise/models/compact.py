"""Slicing: the narrow model that is equal to the masked model."""

from typing import TypeVar, cast

import torch
from torch import Tensor

from fieldwise.core.errors import MaskError
from fieldwise.core.mask import Mask
from fieldwise.core.registry import unknown
from fieldwise.core.schema import Layout, Schema
from fieldwise.models.factory_model import FactoryModel
from fieldwise.models.model import CTRModel, Head, HeadModel
from fieldwise.tables.embedding import FieldEmbedding

M = TypeVar("M", bound=CTRModel)


def compact(model: M, mask: Mask, drop_first_order: bool = False) -> M:
    """A new model with only the mask's columns and first-order weights, and the predictions of the masked model.

    With `drop_first_order`, fields without columns also lose their first-order weights, so the model no longer reads
    them. Predictions then change, and the model should be retrained.
    """
    mask = mask.on(model.layout)
    if isinstance(model, FactoryModel):
        if drop_first_order:
            raise MaskError(
                "drop_first_order is not possible for a factory's model, whose module holds its first-order weights. "
                "Leave it out."
            )
        return cast(M, model.narrowed(mask))
    assert isinstance(model, HeadModel)
    linear = model.linear
    if linear and mask.linear:
        linear = _both(linear, mask.linear)
    if linear and drop_first_order:
        linear = _both(linear, Layout(linear.schema, tuple(min(1, width) for width in mask.widths)))
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        small = model.settings.build(mask.layout, linear)
        _copy_tables(model.embedding, small.embedding, mask.kept)
        if model.first_order and small.first_order:
            _copy_tables(model.first_order, small.first_order, ((0,),) * len(mask.kept))
        small.head.load_state_dict(_sliced(model.head, small.head, mask))
    device = next(model.parameters()).device
    return cast(M, small.to(device).train(model.training))


def widened(model: HeadModel, start: HeadModel, mask: Mask, wider: Mask) -> HeadModel:
    """A copy of a compact model with the columns of a wider mask; `start` has the weights of those it lacks."""
    large = compact(start, wider)
    places = (tuple(map(columns.index, kept)) for columns, kept in zip(wider.kept, mask.kept, strict=True))
    inner = Mask(wider.layout, tuple(places), mask.first_order)
    with torch.no_grad():
        for j, width in enumerate(mask.widths):
            if width:
                part = model.embedding.part_for(large.embedding, j, list(range(width)))
                large.embedding.table(j)[:, list(inner.kept[j])] = part
        if model.first_order and large.first_order and model.linear:
            for j in (j for j, width in enumerate(model.linear.widths) if width):
                large.first_order.table(j).copy_(model.first_order.part_for(large.first_order, j, [0]))
        slices, old = large.head.slices(inner.vectors), model.head.state_dict()
        for name, weight in large.head.state_dict().items():
            weight[_at(weight, slices.get(name, {}))] = old[name]
    return large


def with_tiers(model: HeadModel, schema: Schema) -> HeadModel:
    """The model of a `joined` schema as one of the schema with tiers, with the same predictions.

    The row of a value is in its tier, that of `unknown` in the first. First-order weights of all tiers are added, so
    those of later tiers are less by that of `unknown`.
    """
    widths, linear, columns = list(model.layout.widths), model.linear, model.schema.names
    place = {name: columns.index(column) for column, names in schema.tiers.items() for name in names}
    kept = tuple(tuple(range(widths[place[name]])) for name in schema.names)
    first_order = linear and Layout(schema, tuple(linear.widths[place[name]] for name in schema.names))
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        split = model.settings.build(model.settings.layout(schema).narrowed(kept), first_order)
        split.head.load_state_dict(model.head.state_dict())
        _split_tables(model.embedding, split.embedding, added=False)
        if model.first_order and split.first_order:
            _split_tables(model.first_order, split.first_order, added=True)
    device = next(model.parameters()).device
    return split.to(device).train(model.training)


def _split_tables(old: FieldEmbedding, new: FieldEmbedding, added: bool) -> None:
    """Copy each table to the tiers of its column; `added`: the rows of all tiers are added."""
    for column, (_, own) in enumerate(new.layout.members):
        if not old.layout.widths[column]:
            continue
        unknown, *_ = parts = old.table(column).split([1, *(new.layout.schema.cardinalities[j] - 1 for j in own)])
        for j, rows in zip(own, parts[1:], strict=True):
            first = j == own[0]
            new.table(j)[1:] = rows if first or not added else rows - unknown
            new.table(j)[:1] = unknown if first else 0


def _at(weight: Tensor, axes: dict[int, Tensor]) -> tuple[Tensor, ...]:
    """Indices of the entries that the axes name, and of all along other axes."""
    each = [axes[axis] if axis in axes else torch.arange(size) for axis, size in enumerate(weight.shape)]
    return tuple(torch.meshgrid(*each, indexing="ij")) if each else ()


def _both(one: Layout, other: Layout) -> Layout:
    """The first-order weights that two layouts have."""
    return Layout(one.schema, tuple(min(pair) for pair in zip(one.widths, other.widths, strict=True)))


def _sliced(head: Head, small: Head, mask: Mask) -> dict[str, Tensor]:
    """The weights of a narrow head; refuses slices that do not match its shapes."""
    state, slices = head.state_dict(), head.slices(mask.vectors)
    for name in slices.keys() - state.keys():
        raise MaskError(f"{type(head).__name__}.slices names '{name}'. {unknown('slices', name, state)}")
    for name, axes in slices.items():
        for axis, kept in axes.items():
            state[name] = state[name].index_select(axis, kept.to(state[name].device))
    for name, wanted in small.state_dict().items():
        if state[name].shape != wanted.shape:
            raise MaskError(
                f"{type(head).__name__}.slices leaves '{name}' with the shape {tuple(state[name].shape)}, where the "
                f"narrow head has {tuple(wanted.shape)}. Name the axes that run over columns, and what they keep."
            )
    return state


def _copy_tables(old: FieldEmbedding, new: FieldEmbedding, kept: tuple[tuple[int, ...], ...]) -> None:
    for j, width in enumerate(new.layout.widths):
        if width:
            new.table(j).copy_(old.part_for(new, j, list(kept[j])))
