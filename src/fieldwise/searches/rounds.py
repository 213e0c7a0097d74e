"""Rounds (ours): alternate pruning and training; each round removes the columns that increase the loss least.

The increase in loss from removing a column is estimated by a second-order expansion in the column's mask on validation
rows: the mean over rows of -g + g^2 / 2, where g is the row's derivative of the loss by the mask at 1 (Fisher's
approximation of the curvature). Columns are removed in order of increase per cost, so with a budget in parameters a
column of a large table counts by its rows.
"""

import math
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch.nn import functional

from fieldwise.core.automatic import chosen
from fieldwise.core.budget import Budget
from fieldwise.core.mask import Mask
from fieldwise.core.records import Epoch
from fieldwise.core.schema import Layout
from fieldwise.core.select import select
from fieldwise.core.watcher import Watcher
from fieldwise.data.batches import Batches
from fieldwise.models.compact import compact, widened
from fieldwise.models.model import CTRModel, HeadModel
from fieldwise.processes.ranks import current
from fieldwise.searches.search import SearchResult, finish
from fieldwise.searches.trained import TrainedSearch
from fieldwise.tables.row_factored import row_factored
from fieldwise.train.evaluate import ROWS, evaluate
from fieldwise.train.loop import fit
from fieldwise.train.plan import TrainingPlan
from fieldwise.train.task import Task


class Rounds(TrainedSearch):
    """Rounds of pruning with training between them; each round slices the model to its kept columns."""

    shards = True

    epochs: int = Field(1, ge=1)
    """Passes over the training rows between two rounds, at least 1."""
    rounds: int = Field(8, ge=1)
    """Number of rounds, at least 1. Each reduces the cost by the same factor, from the full model to the budget."""

    def run(self, task: Task, budget: Budget, folder: Path | None, watcher: Watcher | None) -> SearchResult:
        """Prune and train alternately. The last round ends with pruning, because retraining follows."""
        model, history = task.starting_model(), list[Epoch]()
        start, counted = model, budget.counted(model.linear)
        last_scores = np.zeros(len(budget.costs(model.layout, counted)))
        mask = Mask.of(model.layout, np.ones(len(last_scores)), counted)
        bound = budget.fixed(mask.full, model.linear)
        for place, target in enumerate(targets(bound, mask, self.rounds, model.linear)):
            if place:
                home = folder / f"round-{place}" if folder else None
                history += self._train(model, task, place - 1, home, watcher)
            layout, linear, last = model.layout, model.linear, place == self.rounds - 1
            costs = bound.costs(layout, linear)
            scores = increase_per_cost(loss_increase(model, task.valid, len(costs)), costs)
            within = replace(bound, amount=target, fits=bound.fits if last else None).within(layout, linear)
            last_scores[np.flatnonzero(mask.over(counted))] = scores
            inner = select(scores, layout, within, linear)
            mask, model = mask.then(inner), compact(model, inner)
        if budget.unit == "bytes" and isinstance(model, HeadModel) and isinstance(start, HeadModel):
            wider = _filled(mask, last_scores, bound, start.linear)
            mask, model = wider, widened(model, start, mask, wider)
        steps = self.epochs * (self.rounds - 1) * math.ceil(len(task.train) / chosen(self.batch))
        return finish(task, budget, mask, model.eval(), start=self.start_of(task), history=history, steps=steps)

    def _train(
        self, model: CTRModel, task: Task, place: int, folder: Path | None, watcher: Watcher | None
    ) -> list[Epoch]:
        plan = TrainingPlan(
            stage="search",
            forward=row_factored(model, chosen(self.batch)),
            evaluate=lambda: evaluate(model, task.valid),
            stop=lambda _: False,
            keep_best=False,
            same_steps=model.same_steps,
            place=place,
        )
        return fit(model, task, self.training(), plan, folder, watcher)


def _filled(mask: Mask, scores: NDArray[np.float64], bound: Budget, linear: Layout | None) -> Mask:
    """The mask with the dropped columns that still fit, best first by their last scores."""
    kept = mask.over(bound.counted(linear))
    top = 1 + np.abs(scores).max()
    found = select(np.where(kept, 2 * top + scores, scores), mask.full, bound, linear)
    return found if found.over(bound.counted(linear))[kept].all() else mask


def targets(bound: Budget, full: Mask, rounds: int, linear: Layout | None = None) -> list[int]:
    """Maximum cost of the kept columns after each round; the last is the budget itself."""
    limit, cost = bound.limit(full.full, linear), int(bound.costs(full.full, linear).sum())
    return [round(cost * (limit / cost) ** (place / rounds)) for place in range(1, rounds)] + [limit]


def increase_per_cost(increases: NDArray[np.float64], costs: NDArray[np.int64]) -> NDArray[np.float64]:
    """Increase per cost. Columns whose removal lowers the loss are removed first, regardless of their cost."""
    return np.where(increases > 0, increases / costs, increases)


def loss_increase(model: CTRModel, rows: Batches, count: int | None = None) -> NDArray[np.float64]:
    """Expected increase of the mean loss when each column is removed, (S,).

    With a larger `count`, first-order weights follow the columns.
    """
    training = model.training
    model.eval()
    count = count or model.layout.columns
    device = next(model.parameters()).device
    total, ones = torch.zeros(count, dtype=torch.float64, device=device), torch.ones(count, device=device)
    for batch in rows.ordered(ROWS):
        loss = partial(functional.binary_cross_entropy_with_logits, target=batch.labels, reduction="sum")
        slope = model.slopes(batch.ids, loss, ones)  # each row's derivative by the mask, (B, count)
        total += (slope.square() / 2 - slope).sum(0).double()
    model.train(training)
    current().add([total])
    return (total / len(rows)).cpu().numpy()
