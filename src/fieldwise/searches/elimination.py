"""Elimination (ours): drop columns one by one, each time the one whose loss increases least per cost.

The loss of the pretrained model is expanded to second order in the masks of all columns, on the validation rows: the
gradient is the mean of each row's derivatives by the masks, the curvature the mean of their products (Fisher's
approximation). When a column goes, the masks of the others move to the minimum of this expansion, so a column counts
for what the others cannot replace: the first column of a field for more than its fifth, and two equal columns are not
both dropped. This is backward elimination of a regression, known for weights as the optimal brain surgeon (Hassibi and
Stork 1993). No training: one pass over the validation rows.
"""

import time
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch.nn import functional

from fieldwise.core.budget import Budget
from fieldwise.core.errors import TrainingError
from fieldwise.core.schema import Layout
from fieldwise.core.select import select
from fieldwise.core.watcher import Watcher
from fieldwise.data.batches import Batches
from fieldwise.models.model import CTRModel
from fieldwise.processes.ranks import current
from fieldwise.searches.search import Search, SearchResult, finish
from fieldwise.train.evaluate import ROWS
from fieldwise.train.task import Task

Floats = NDArray[np.float64]
JOINT: Final = 1024
"""Above this many columns, only columns of one field replace each other: the work grows with the third power."""


class Elimination(Search):
    """Drops columns one by one from a second-order expansion of the pretrained model's loss, without training."""

    shards = True

    ridge: float = Field(0.01, gt=0)
    """Added to the curvature of every column, in multiples of its mean; above 0. Larger values let columns replace
    each other less."""

    def run(self, task: Task, budget: Budget, folder: Path | None, watcher: Watcher | None) -> SearchResult:
        """Keep the columns that are eliminated last."""
        started = time.perf_counter()
        model = task.starting_model()
        costs = budget.costs(model.layout, model.linear)
        groups = groups_of(model.layout, budget.counted(model.linear))
        gradient, curvature = expansion(model, task.valid, len(costs), groups)
        scores = current().from_first(lambda: ranks(gradient, curvature, costs, groups, self.ridge))
        mask = select(scores, model.layout, budget, model.linear)
        return finish(task, budget, mask, model, seconds=time.perf_counter() - started)


def groups_of(layout: Layout, linear: Layout | None = None) -> list[NDArray[np.int64]]:
    """Columns that may replace each other: all, or above `JOINT` those of each field with its first-order weight."""
    owners = layout.owners if linear is None else np.concatenate([layout.owners, linear.owners])
    if len(owners) <= JOINT:
        return [np.arange(len(owners))]
    return [places for j in range(len(layout.schema)) if len(places := np.flatnonzero(owners == j))]


def expansion(
    model: CTRModel, rows: Batches, count: int, groups: list[NDArray[np.int64]]
) -> tuple[Floats, list[Floats]]:
    """Gradient (count,) of the mean loss by the masks, and its curvature (n, n) within each group."""
    training, device = model.training, next(model.parameters()).device
    model.eval()
    places = [torch.from_numpy(group).to(device) for group in groups]
    total = torch.zeros(count, dtype=torch.float64, device=device)
    squares = [torch.zeros(len(group), len(group), dtype=torch.float64, device=device) for group in groups]
    for batch in rows.ordered(ROWS):
        loss = partial(functional.binary_cross_entropy_with_logits, target=batch.labels, reduction="sum")
        slopes = model.slopes(batch.ids, loss, count)  # each row's derivative by the masks, (B, count)
        total += slopes.sum(0).double()
        for square, place in zip(squares, places, strict=True):
            part = slopes if len(place) == count else slopes.index_select(1, place)
            square += (part.T @ part).double()
    model.train(training)
    current().add([total, *squares])
    return (total / len(rows)).cpu().numpy(), [(square / len(rows)).cpu().numpy() for square in squares]


def ranks(
    gradient: Floats, curvature: list[Floats], costs: NDArray[np.int64], groups: list[NDArray[np.int64]], ridge: float
) -> Floats:
    """The order of elimination: 0 for the column that goes first. Raises if the expansion is not finite."""
    diagonals = np.concatenate([square.diagonal() for square in curvature])
    if not (np.isfinite(diagonals).all() and np.isfinite(gradient).all()):
        raise TrainingError(
            "The derivatives of the loss by the columns' masks are not finite: the model that was searched has "
            "diverged. Lower the learning rate, and train it again."
        )
    lift = ridge * float(diagonals.mean()) or 1.0  # a model without any slope: every order is as good
    remaining = [
        Remaining(square + lift * np.eye(len(group)), gradient[group], costs[group], group)
        for square, group in zip(curvature, groups, strict=True)
    ]
    least = np.array([part.least for part in remaining])
    order = np.empty(len(costs))
    for place in range(len(costs)):
        chosen = int(least.argmin())
        order[remaining[chosen].drop()] = place
        least[chosen] = remaining[chosen].least
    return order


class Remaining:
    """The columns of one group that are not eliminated yet, and the masks that minimize the expansion over them."""

    def __init__(
        self, curvature: Floats, gradient: Floats, costs: NDArray[np.int64], places: NDArray[np.int64]
    ) -> None:
        self._costs, self._places = costs.astype(np.float64), places
        self._inverse = np.linalg.inv(curvature)
        self.masks = self._inverse @ (curvature.sum(1) - gradient)
        self._left = np.ones(len(places), dtype=np.bool_)

    @property
    def per_cost(self) -> Floats:
        """Increase of the loss per cost if a column goes and the others move; infinite for those that went."""
        own = np.where(self._left, self._inverse.diagonal(), 1)
        return np.where(self._left, self.masks**2 / (2 * own) / self._costs, np.inf)

    @property
    def least(self) -> float:
        """The smallest increase per cost; infinite if no column is left."""
        return float(self.per_cost.min()) if len(self._places) else np.inf

    def drop(self) -> int:
        """Eliminate the column with the smallest increase per cost; returns its place among all columns."""
        gone = int(self.per_cost.argmin())
        found, column = int(self._places[gone]), self._inverse[:, gone].copy()
        self.masks -= column * (self.masks[gone] / column[gone])
        self._inverse -= np.outer(column, column / column[gone])
        self._left[gone] = False
        if 2 * self._left.sum() <= len(self._left):  # smaller arrays from here on
            left = self._left
            self._inverse, self.masks = self._inverse[np.ix_(left, left)], self.masks[left]
            self._costs, self._places, self._left = self._costs[left], self._places[left], left[left]
        return found
