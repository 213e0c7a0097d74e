"""Which fields a mixed budget stores in int8, by what rounding to int4 costs.

Rounding multiplies the numbers of a column by about 1 + e. To second order, the loss then increases by half the
curvature of the column's mask times the mean square of e. Int8 takes nearly all of that away, for almost as many bytes
again, and columns that are worth less per byte must make room for it.
"""

from dataclasses import replace

import numpy as np
import torch

from fieldwise.core.budget import Budget
from fieldwise.core.errors import BudgetError
from fieldwise.models.model import HeadModel
from fieldwise.searches.elimination_order import Floats, Order, Places
from fieldwise.tables.embedding import FieldEmbedding
from fieldwise.tables.quantize import SAMPLE, fitted_scales, rounded


def fields_in_int8(model: HeadModel, budget: Budget, order: Order, curvature: Floats) -> tuple[str, ...]:
    """The names of the fields to store in int8 under a mixed budget.

    `order` is that of elimination in int4, down to no column; `curvature` (n,) that of the loss by each mask.
    """
    linear = budget.counted(model.linear)
    owners, errors = model.layout.owners, relative_errors(model.embedding, budget.stored.top)
    if linear and model.first_order is not None:
        owners = np.concatenate([owners, linear.owners])
        errors = np.concatenate([errors, relative_errors(model.first_order, budget.stored.top)])
    saved = model.settings.int8_factor * curvature * errors / 2
    in_int8 = replace(budget, int8=model.layout.schema.names).costs(model.layout, linear)
    chosen = worth_int8(saved, in_int8, owners, order, budget.limit(model.layout, linear))
    names = tuple(model.layout.schema.names[field] for field in chosen)
    try:
        replace(budget, int8=names).limit(model.layout, linear)
    except BudgetError:  # no column of any field would fit
        return ()
    return names


def worth_int8(saved: Floats, in_int8: Places, owners: Places, order: Order, room: int) -> list[int]:
    """The fields for which int8 saves more of the loss per further cost than the last columns that must go for it.

    `saved` (n,) is what each column's int8 saves, `in_int8` (n,) its cost there, `owners` (n,) its field.
    """
    count = int(owners.max()) + 1
    further = np.bincount(owners, in_int8 - order.costs, count)
    saves = np.bincount(owners, saved, count)
    each = np.divide(saves, further, out=np.where(saves > 0, np.inf, 0), where=further > 0)
    gone, costs, chosen = np.argsort(order.ranks), order.costs, list[int]()
    prices = np.maximum.accumulate(order.prices[gone])
    for field in np.argsort(-each, kind="stable").tolist():
        wide = np.where(owners == field, in_int8, costs)
        left = wide.sum() - wide[gone].cumsum()
        price = prices[np.flatnonzero(left <= room)[0]] if wide.sum() > room else 0.0
        if each[field] > price:
            chosen.append(field)
            costs = wide
    return chosen


@torch.no_grad()
def relative_errors(tables: FieldEmbedding, top: int) -> Floats:
    """Mean square of the error of each column if it is rounded, over that of its numbers, (S,)."""
    found = []
    for field, width in enumerate(tables.layout.widths):
        if width:
            values = tables.table(field)
            values = values[:: -(-len(values) // SAMPLE)]
            error = (rounded(values, fitted_scales(values, top), top) - values).square().mean(0)
            found.append(error / values.square().mean(0).clamp(min=torch.finfo(values.dtype).tiny))
    return torch.cat(found).double().cpu().numpy()
