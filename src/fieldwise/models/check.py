"""A check that a user's base model can be pruned: the compact model must equal the masked model."""

from typing import Final

import numpy as np
import torch
from torch import Tensor, nn

from fieldwise.core.errors import MaskError, SettingsError
from fieldwise.core.mask import Mask
from fieldwise.core.schema import Field, Layout, Schema
from fieldwise.models.compact import compact
from fieldwise.models.factory import IDS, Factory
from fieldwise.models.model import CTRModel, HeadModel, Model, OwnModel

FEW: Final = 20
"""Maximum ids per field in the check, whose outcome does not depend on it."""
ROWS: Final = 32
NEAR: Final = 1e-3
"""Tolerance of the logits, relative to the largest."""


def check_model(settings: Model, schema: Schema) -> None:
    """Refuse a base model that cannot be sliced, or whose predictions change when zero columns are removed."""
    few = Schema(tuple(Field(field.name, min(field.cardinality, FEW), field.length) for field in schema.fields))
    if isinstance(settings, Factory):
        _check_factory(settings, few, schema)
        return
    assert isinstance(settings, OwnModel)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        _build_on_meta(settings, few.layout(settings.width))
        model = _randomized(settings.build(few.layout(settings.width)))
        ids = _ids(few)
        for name, mask in _masks(model.layout).items():
            masked = model(ids, torch.from_numpy(mask.vector).float())
            small = compact(model, mask)(ids)
            if masked.shape != (ROWS,) or small.shape != (ROWS,):
                raise MaskError(
                    f"{type(settings).__name__} gives logits of shape {tuple(masked.shape)} for {ROWS} rows. "
                    f"They must be ({ROWS},). End the head's `forward` with a squeeze."
                )
            apart = float((masked - small).abs().max())
            if not apart <= NEAR * max(1.0, float(masked.abs().max())):
                raise MaskError(
                    f"{type(settings).__name__} cannot be pruned: with {name} kept, logits of the compact model are "
                    f"{apart:.2g} away from the masked model's. They must agree. A column that is 0 must add nothing "
                    "to any layer, and `slices` must keep the same columns as the mask."
                )


def _check_factory(settings: Factory, few: Schema, schema: Schema) -> None:
    """Refuse a factory whose compact modules would predict something else; the comparison is part of compacting."""
    _check_memory(settings, schema)
    try:
        settings.inside(few)
    except SettingsError:  # a factory for these fields only
        few = schema
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = settings.new(few)
        with torch.no_grad():
            _randomize(model)
        masks = _masks(model.layout)
        for name in ("half of the columns", "one column"):
            model.narrowed(masks[name])


def _check_memory(settings: Factory, schema: Schema) -> None:
    """Refuse a factory of many ids whose stored models could not be loaded."""
    if sum(schema.cardinalities) <= IDS:
        return
    try:
        with torch.random.fork_rng(devices=[]), torch.device("meta"):
            settings.module(schema)
    except SettingsError as error:
        raise MaskError(
            f"{error} It must build under torch.device('meta') for more than {IDS:,} ids, so that loading needs no "
            "memory for full tables. Do not read values of tensors while building."
        ) from error


def _build_on_meta(settings: OwnModel, layout: Layout) -> None:
    """Build it on the meta device, as loading does to check a file's shapes before allocating memory."""
    try:
        with torch.device("meta"):
            settings.build(layout)
    except (RuntimeError, NotImplementedError) as error:
        why = " ".join(str(error).split())[:200]
        raise MaskError(
            f"{type(settings).__name__} cannot be built on torch's meta device ({why}). It must be, so that loading "
            "checks sizes before it allocates memory. Do not read values of tensors while building."
        ) from error


def _masks(layout: Layout) -> dict[str, Mask]:
    draw = np.random.default_rng(0)
    half = draw.permutation(layout.columns) % 2
    one = np.zeros(layout.columns)
    one[-1] = 1
    return {
        "half of the columns": Mask.of(layout, half),
        "one column": Mask.of(layout, one),
        "all columns": Mask.all(layout),
    }


def _ids(schema: Schema) -> Tensor:
    draw = np.random.default_rng(0)
    columns = [draw.integers(0, field.cardinality, (ROWS, field.length)) for field in schema.fields]
    return torch.from_numpy(np.concatenate(columns, 1).astype(np.int32))


def _randomized(model: HeadModel) -> HeadModel:
    """The model with random weights and statistics, as after training, so that no zero hides a mistake."""
    _randomize(model)
    return model.eval()


def _randomize(model: CTRModel) -> None:
    for weight in model.parameters():
        weight.add_(torch.randn_like(weight) * 0.3)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm1d) and module.running_mean is not None and module.running_var is not None:
            module.running_mean.normal_()
            module.running_var.uniform_(0.5, 2)
