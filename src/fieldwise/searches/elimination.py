"""Elimination (ours): drop columns one by one, each time the one whose loss increases least per cost.

The loss of the pretrained model is expanded to second order in the masks of all columns, on the validation rows: the
gradient is the mean of each row's derivatives by the masks, the curvature the mean of their products (Fisher's
approximation). When a column goes, the masks of the others move to the minimum of this expansion, so a column counts
for what the others cannot replace: the first column of a field for more than its fifth, and two equal columns are not
both dropped. This is backward elimination of a regression, known for weights as the optimal brain surgeon (Hassibi and
Stork 1993). Far from where it was made an expansion is wrong, so the loss is expanded again each time half of the cost
is gone, of a model that has only the columns that are left. No training: one pass over the validation rows per
expansion.
"""

import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch.nn import functional

from fieldwise.core.budget import Budget
from fieldwise.core.mask import Mask
from fieldwise.core.schema import Layout
from fieldwise.core.select import select
from fieldwise.core.store import MIXED
from fieldwise.core.watcher import Watcher
from fieldwise.data.batches import Batches
from fieldwise.models.compact import compact
from fieldwise.models.model import CTRModel, HeadModel
from fieldwise.processes.ranks import current
from fieldwise.searches.elimination_order import NONE, Floats, Order, Places
from fieldwise.searches.precision import fields_in_int8
from fieldwise.searches.search import Search, SearchResult, finish
from fieldwise.train.evaluate import ROWS
from fieldwise.train.task import Task

JOINT: Final = 2048
"""Above this many columns, only columns of one field replace each other: the work grows with the third power."""
ROWS_PER_COLUMN: Final = 4
"""With fewer validation rows per column, the loss is expanded once: masks fitted to so few rows go astray."""
FEW: Final = 0.005
"""Fraction of the whole cost below which the loss is not expanded again."""


class Elimination(Search):
    """Drops columns one by one from second-order expansions of the pretrained model's loss, without training."""

    shards = True
    mixes = True

    ridge: float = Field(0.01, gt=0)
    """Added to the curvature of every column, in multiples of its mean; above 0. Larger values let columns replace
    each other less."""
    stage: float = Field(0.5, ge=0, lt=1)
    """Once this fraction of the cost is left, the loss is expanded again, around the masks found so far; then again at
    this fraction of that, and so on. 0: one expansion, as also above 2,048 columns, or with fewer than 4 validation
    rows per column."""
    last_column: float = Field(4.0, ge=1)
    """Factor of the loss increase for the last column of a field, at least 1: without it, retraining cannot use the
    field any more."""

    def run(self, task: Task, budget: Budget, folder: Path | None, watcher: Watcher | None) -> SearchResult:
        """Keep the columns that are eliminated last."""
        started = time.perf_counter()
        model = task.starting_model()
        order, curvature = self._eliminated(task, model, budget)
        if budget.store == MIXED and isinstance(model, HeadModel):  # a factory's tables are float32
            int8 = current().from_first(partial(fields_in_int8, model, budget, order, curvature))
            budget = replace(budget, int8=int8)
        mask = select(order.ranks, model.layout, budget, model.linear)
        return finish(task, budget, mask, model, seconds=time.perf_counter() - started)

    def _eliminated(self, task: Task, model: CTRModel, budget: Budget) -> tuple[Order, Floats]:
        """The order of all columns, and the curvature of each at the start, (count,)."""
        costs = budget.costs(model.layout, model.linear)
        groups = groups_of(model.layout, budget.counted(model.linear))
        enough = max(budget.limit(model.layout, model.linear), FEW * int(costs.sum()))
        # masks of few rows, or of fields that ignore each other, are no point to expand around
        stage = self.stage if len(groups) == 1 and len(task.valid) >= ROWS_PER_COLUMN * len(costs) else 0.0
        order = Order.of(costs, groups, fields_of(model.layout, len(costs)), self.ridge, self.last_column)
        linear, first = budget.counted(model.linear), np.zeros(0)
        while order.left.any():
            if isinstance(model, HeadModel) and order.dropped > 0 and order.left[: model.layout.columns].any():
                gradient, curvature = expansion_of(order.left, model, linear, task.valid, order.masks)
            else:
                gradient, curvature = expansion(model, task.valid, len(costs), groups, order.masks)
            cost = stage * order.cost
            eliminate = partial(order.eliminate, gradient, curvature, cost if cost > enough else NONE)
            order = current().from_first(eliminate)
            first = first if len(first) else _diagonal(curvature, groups)
        return order, first


def _diagonal(curvature: list[Floats], groups: list[Places]) -> Floats:
    """The curvature of every column alone, (count,)."""
    found = np.zeros(sum(map(len, groups)))
    for square, places in zip(curvature, groups, strict=True):
        found[places] = square.diagonal()
    return found


def groups_of(layout: Layout, linear: Layout | None = None) -> list[Places]:
    """Columns that may replace each other: all, or above `JOINT` those of each field with its first-order weight."""
    owners = layout.owners if linear is None else np.concatenate([layout.owners, linear.owners])
    if len(owners) <= JOINT:
        return [np.arange(len(owners))]
    return [places for j in range(len(layout.schema)) if len(places := np.flatnonzero(owners == j))]


def expansion(
    model: CTRModel, rows: Batches, count: int, groups: list[Places], masks: Floats
) -> tuple[Floats, list[Floats]]:
    """Gradient (count,) of the mean loss by the masks, and its curvature (n, n) within each group."""
    training, device = model.training, next(model.parameters()).device
    model.eval()
    places = [torch.from_numpy(group).to(device) for group in groups]
    at = torch.from_numpy(masks).float().to(device)
    total = torch.zeros(count, dtype=torch.float64, device=device)
    squares = [torch.zeros(len(group), len(group), dtype=torch.float64, device=device) for group in groups]
    for batch in rows.ordered(ROWS):
        loss = partial(functional.binary_cross_entropy_with_logits, target=batch.labels, reduction="sum")
        slopes = model.slopes(batch.ids, loss, at)  # each row's derivative by the masks, (B, count)
        total += slopes.sum(0).double()
        for square, place in zip(squares, places, strict=True):
            part = slopes if len(place) == count else slopes.index_select(1, place)
            square += (part.T @ part).double()
    model.train(training)
    current().add([total, *squares])
    return (total / len(rows)).cpu().numpy(), [(square / len(rows)).cpu().numpy() for square in squares]


def expansion_of(
    left: NDArray[np.bool_], model: HeadModel, linear: Layout | None, rows: Batches, masks: Floats
) -> tuple[Floats, list[Floats]]:
    """The expansion of a model that has only the columns that are left, in one group; 0 at all others."""
    small, count = compact(model, Mask.of(model.layout, left, linear)), int(left.sum())
    own, (square,) = expansion(small, rows, count, [np.arange(count)], masks[left])
    gradient, curvature = np.zeros(len(left)), np.zeros((len(left), len(left)))
    gradient[left], curvature[np.ix_(left, left)] = own, square
    return gradient, [curvature]


def ranks(
    gradient: Floats, curvature: list[Floats], costs: Places, groups: list[Places], ridge: float,
    fields: Places | None = None, last: float = 1.0,
) -> Floats:  # fmt: skip
    """The order of elimination by one expansion: 0 for the column that goes first. Raises if it is not finite."""
    owners = np.full(len(costs), -1) if fields is None else fields
    return Order.of(costs, groups, owners, ridge, last).eliminate(gradient, curvature).ranks


def fields_of(layout: Layout, count: int) -> Places:
    """The field of every column, (count,); -1 for the first-order weights that follow them."""
    return np.concatenate([layout.owners, np.full(count - layout.columns, -1)]).astype(np.int64)
