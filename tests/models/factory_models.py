"""Models of factories with weights far from their initial values, and masks to make them compact."""

from typing import Any

import numpy as np
import torch

import fieldwise as fw
from fieldwise.core.mask import Mask
from fieldwise.models.factory import factory_of
from fieldwise.models.factory_model import FactoryModel

LISTS = fw.Schema((fw.Field("user", 30), fw.Field("gender", 2), fw.Field("genres", 9, length=3)))
PLAIN = fw.Schema.of(user=30, gender=2, item=12)


def model_of(build: Any, schema: fw.Schema = PLAIN) -> FactoryModel:
    """A model with weights far from their initial values."""
    model = factory_of(build)().new(schema)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight) * 0.3)
    return model.eval()


def mask_for(model: FactoryModel) -> Mask:
    """Half of the columns, none of the first field's."""
    values = np.arange(model.layout.columns) % 2
    if len(model.layout.widths) > 1:
        values[: model.layout.widths[0]] = 0
    return Mask.of(model.layout, values)
