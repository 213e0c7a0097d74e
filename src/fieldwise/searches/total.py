"""Budgets that also count dense layers: the bytes that these leave for the tables."""

from dataclasses import replace
from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray

from fieldwise.core.automatic import AUTO
from fieldwise.core.budget import Budget
from fieldwise.core.errors import BudgetError
from fieldwise.core.mask import Mask
from fieldwise.core.schema import Layout, Schema
from fieldwise.core.select import select
from fieldwise.models.model import Model, OwnModel


def tables_budget(model: Model, schema: Schema, budget: Budget) -> Budget:
    """The budget of what is stored per id; refuses one that cannot be met.

    With `total`, dense layers leave the tables a limit that depends on the kept columns. It is first estimated with
    equal widths, by bisection; `select` then bisects again, with the dense layers of the columns that it keeps.
    """
    budget = typed_budget(model, schema, budget)
    layout, linear = model.layout(schema), model.linear(schema)
    if not budget.total:
        budget.limit(layout, linear)
        return budget
    if not isinstance(model, OwnModel):
        raise BudgetError(
            f"Budget of {budget}: the dense layers of a factory's model are not counted. Leave 'total' out."
        )
    dense = cache(lambda columns: dense_bytes(model, columns))

    def spent(mask: Mask) -> int:
        return int(budget.costs(mask.layout, mask.linear).sum()) + dense(mask.layout)

    tables = int(budget.costs(layout, linear).sum())
    amount = budget.amount_of(budget.full(layout, linear) + dense(layout))
    bound = replace(budget, amount=tables, share=False, total=False, fits=lambda mask: spent(mask) <= amount)
    even = select(even_scores(layout, budget.counted(linear)), layout, bound, linear)
    most = tables + dense(layout)
    if not spent(even) <= amount <= most:
        least = spent(even) if spent(even) > amount else 1
        raise BudgetError(
            f"Budget of {budget} ({amount} bytes) cannot be met. Allowed: {least} to {most} bytes, dense layers "
            "included. Choose another budget, or leave 'total' out."
        )
    return replace(bound, amount=int(budget.costs(even.layout, even.linear).sum()))


def typed_budget(model: Model, schema: Schema, budget: Budget) -> Budget:
    """The budget with the stored type that it is to have for this model."""
    if budget.store != AUTO:
        return budget
    if not isinstance(model, OwnModel):
        return replace(budget, store="float32")  # a factory's tables are not stored in other types
    layout = model.layout(schema)
    return budget.typed(layout, model.linear(schema), dense_bytes(model, layout) if budget.total else 0)


def dense_bytes(model: OwnModel, layout: Layout) -> int:
    """Bytes of the dense layers of a model with these columns, counted without allocating them."""
    with torch.random.fork_rng(devices=[]), torch.device("meta"):
        return sum(tensor.nbytes for tensor in model.head(layout.vectors).state_dict().values())


def even_scores(layout: Layout, linear: Layout | None) -> NDArray[np.float64]:
    """Scores that keep first-order weights, then column 0 of all fields, then column 1, and so on."""
    rounds = [np.arange(width) for width in layout.widths]
    return -np.concatenate([*rounds, np.full(linear.columns if linear else 0, -1)]).astype(np.float64)
