"""Small models of every kind, with weights far from their initial values, and masks to make them compact."""

import numpy as np
import torch
from torch import Tensor, nn

from fieldwise.core.mask import Mask
from fieldwise.core.registry import resolve
from fieldwise.core.schema import Layout, Schema
from fieldwise.models import MODELS
from fieldwise.models.autoint import AutoInt
from fieldwise.models.dcnv2 import DCNv2
from fieldwise.models.model import HeadModel, OwnModel

SCHEMA = Schema.of(user=50, gender=2, item=30, city=7)
VARIED: list[OwnModel] = [AutoInt(hidden=(8,), layers=2, heads=4), DCNv2(cross_layers=2, hidden=(8,), dropout=0.2)]


def every_model() -> list[OwnModel]:
    """Every model of the registry, and two with other settings."""
    return [resolve("model", MODELS, name)() for name in MODELS] + VARIED


def ids_of(schema: Schema, rows: int = 64) -> Tensor:
    """Random rows of a schema."""
    draw = np.random.default_rng(0)
    return torch.from_numpy(np.stack([draw.integers(0, c, rows) for c in schema.cardinalities], 1).astype(np.int32))


def trained(settings: OwnModel, layout: Layout, scale: float = 0.3) -> HeadModel:
    """A model with random weights and batch statistics."""
    model = settings.build(layout)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight) * scale)
    draw_statistics(model)
    return model.eval()


def draw_statistics(model: nn.Module) -> None:
    """Set the statistics of batch norms to random values, as after training."""
    for module in model.modules():
        if isinstance(module, nn.BatchNorm1d):
            assert module.running_mean is not None
            assert module.running_var is not None
            module.running_mean.normal_()
            module.running_var.uniform_(0.5, 2)


MASKS = {
    "random": lambda layout: Mask.of(layout, np.random.default_rng(1).integers(0, 2, layout.columns)),
    "a field of width 0": lambda layout: Mask(layout, ((0, 3), (), (1, 2, 5), (0,))),
    "two fields of width 0": lambda layout: Mask(layout, ((), (1,), (), (0, 6))),
    "one column": lambda layout: Mask(layout, ((), (), (4,), ())),
    "everything": Mask.all,
}
