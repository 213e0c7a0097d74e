"""Rounds (ours): prune a little, train on, and prune again, each time the columns whose loss would rise least.

What the loss rises by when a column goes is told by its second-order expansion in the column's mask, on validation
rows: the mean over rows of -g + g^2 / 2, where g is the row's derivative of the loss by the mask at 1 (Fisher's
approximation of the curvature). Columns go by rise per cost, so a budget in parameters weighs a large table's column by
its rows.
"""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch.nn import functional

from fieldwise.core.budget import Budget
from fieldwise.core.mask import Mask
from fieldwise.core.records import Epoch, SearchSummary
from fieldwise.core.select import select
from fieldwise.core.watcher import Watcher
from fieldwise.data.batches import Batches
from fieldwise.models.compact import compact
from fieldwise.models.model import CTRModel
from fieldwise.searches.search import Search, SearchResult
from fieldwise.tables.optimizer import Method
from fieldwise.tables.row_factored import row_factored
from fieldwise.train.evaluate import ROWS, evaluate
from fieldwise.train.loop import Precision, Training, TrainingPlan, fit
from fieldwise.train.task import Task


class Rounds(Search):
    """Rounds of pruning with training between them; the model is really narrower after each."""

    rounds: int = Field(8, ge=1)
    """How many; the cost falls by the same factor in each, from the full model's to the budget."""
    epochs: int = Field(1, ge=1)
    """Passes over the training rows between two rounds."""
    batch: int = Field(2048, ge=2)
    """Rows per step."""
    learning_rate: float = Field(1e-3, gt=0)
    """Of the optimizer."""
    optimizer: Method = "adam"
    """As in pretraining."""
    precision: Precision = "float32"
    """As in pretraining."""

    def run(self, task: Task, budget: Budget, folder: Path | None, watcher: Watcher | None) -> SearchResult:
        """Prunes and trains in turn; it ends with a pruning, since retraining follows."""
        model, history = task.starting_model(), list[Epoch]()
        mask = Mask.all(model.layout)
        bound = budget.fixed(mask.full)
        for place, target in enumerate(targets(bound, mask, self.rounds)):
            if place:
                home = folder / f"round-{place}" if folder else None
                history += self._train(model, task, place - 1, home, watcher)
            scores = rise_per_cost(rise(model, task.valid), bound.costs(model.layout))
            inner = select(scores, model.layout, replace(bound, amount=target).within(model.layout))
            mask, model = mask.then(inner), compact(model, inner)
        epochs = self.epochs * (self.rounds - 1)
        summary = SearchSummary(
            steps=epochs * math.ceil(len(task.train) / self.batch),
            epochs=epochs,
            evaluated_auc=None,
            selected_auc=evaluate(model.eval(), task.valid).auc,
            raw_live=None,
            reactivations=0,
        )
        return SearchResult(budget, mask, model, summary, tuple(history), seconds=sum(e.seconds for e in history))

    def _train(
        self, model: CTRModel, task: Task, place: int, folder: Path | None, watcher: Watcher | None
    ) -> list[Epoch]:
        training = Training(
            batch=self.batch,
            learning_rate=self.learning_rate,
            optimizer=self.optimizer,
            precision=self.precision,
            epochs=self.epochs,
        )
        plan = TrainingPlan(
            stage="search",
            forward=row_factored(model),
            evaluate=lambda: evaluate(model, task.valid),
            stop=lambda _: False,
            keep_best=False,
            same_steps=True,
            place=place,
        )
        return fit(model, task, training, plan, folder, watcher)


def targets(bound: Budget, full: Mask, rounds: int) -> list[int]:
    """What the kept columns may cost after each round, the last the budget itself."""
    limit, cost = bound.limit(full.full), int(bound.costs(full.full).sum())
    return [round(cost * (limit / cost) ** (place / rounds)) for place in range(1, rounds)] + [limit]


def rise_per_cost(rises: NDArray[np.float64], costs: NDArray[np.int64]) -> NDArray[np.float64]:
    """Rise per cost; a column whose going lowers the loss goes first, whatever it costs."""
    return np.where(rises > 0, rises / costs, rises)


def rise(model: CTRModel, rows: Batches) -> NDArray[np.float64]:
    """By how much the mean loss is expected to rise without each column, (S,)."""
    training = model.training
    model.eval()
    total = torch.zeros(model.layout.columns, dtype=torch.float64, device=next(model.parameters()).device)
    for batch in rows.ordered(ROWS):
        with torch.no_grad():
            v = model.embedding(batch.ids)  # (B, S)
        v.requires_grad_()
        logits = model.logits(batch.ids, v)
        loss = functional.binary_cross_entropy_with_logits(logits, batch.labels, reduction="sum")
        (grad,) = torch.autograd.grad(loss, v)
        felt = grad * v.detach()  # each row's derivative by the mask, (B, S)
        total += (felt.square() / 2 - felt).sum(0).double()
    model.train(training)
    return (total / len(rows)).cpu().numpy()
