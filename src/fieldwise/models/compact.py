"""Slicing: the narrow model that computes what the masked one computes."""

import torch

from fieldwise.core.errors import MaskError
from fieldwise.core.mask import Mask
from fieldwise.core.schema import Layout
from fieldwise.models.embedding import FieldEmbedding
from fieldwise.models.model import CTRModel


def compact(model: CTRModel, mask: Mask, drop_first_order: bool = False) -> CTRModel:
    """A new model with the mask's columns alone, and the same predictions as the masked model.

    With `drop_first_order` the first-order weights of fields that keep no column go too, and with them the field; then
    predictions change, and the model should be retrained.
    """
    if mask.full != model.layout:
        raise MaskError(f"A mask over widths {mask.full.widths} for a model of widths {model.layout.widths}.")
    linear = model.linear
    if linear and drop_first_order:
        linear = Layout(linear.schema, tuple(min(1, width) for width in mask.widths))
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        small = model.settings.build(mask.layout, linear)
        _copy_tables(model.embedding, small.embedding, mask.kept)
        if model.first_order and small.first_order:
            _copy_tables(model.first_order, small.first_order, ((0,),) * len(mask.kept))
        slices = model.head.slices(mask)
        state = model.head.state_dict()
        for name, axes in slices.items():
            for axis, kept in axes.items():
                state[name] = state[name].index_select(axis, kept.to(state[name].device))
        small.head.load_state_dict(state)
    device = next(model.parameters()).device
    return small.to(device).train(model.training)


def _copy_tables(old: FieldEmbedding, new: FieldEmbedding, kept: tuple[tuple[int, ...], ...]) -> None:
    for j, width in enumerate(new.layout.widths):
        if width:
            new.table(j).copy_(old.table(j)[:, list(kept[j])])
