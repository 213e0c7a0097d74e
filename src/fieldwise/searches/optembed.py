"""OptEmbed (Lyu et al. 2022): a supernet with random widths and learned row thresholds, then evolution of the widths.

While the supernet trains, each sample uses a random number of first columns of each field, and rows whose l1 norm is
below their field's threshold are zero. Evolution then optimizes the widths by validation AUC, with frozen weights. Our
choices: a hard budget, enforced by repairing every child; parents come from all generations; and the narrow model keeps
all rows, because its tables are dense. The summary reports how many numbers the kept rows would store.
"""

import time
from copy import deepcopy
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from fieldwise.core.budget import Budget
from fieldwise.core.errors import BudgetError
from fieldwise.core.mask import Mask
from fieldwise.core.schema import Layout
from fieldwise.core.watcher import Watcher
from fieldwise.models.model import CTRModel, HeadModel
from fieldwise.processes.ranks import current
from fieldwise.searches.evolution import Evolution, Genes, Room
from fieldwise.searches.search import Restarting, SearchResult, check_smallest, finish
from fieldwise.searches.trained import AdamSearch
from fieldwise.tables.state import Tensors
from fieldwise.train.evaluate import evaluate
from fieldwise.train.loop import fit
from fieldwise.train.plan import TrainingPlan
from fieldwise.train.task import Task


class OptEmbed(Restarting, AdamSearch):
    """Trains one supernet for all widths, then evolves widths within the budget."""

    own_network: ClassVar[str] = "trains a supernet with random widths, in place of your model"

    threshold_rate: float = Field(1e-4, ge=0)
    """Learning rate of the row thresholds (plain gradient steps), at least 0."""
    pressure: float = Field(3e-4, ge=0)
    """Weight of the term exp(-threshold) that raises the thresholds, at least 0."""
    evolution: Evolution = Field(default_factory=Evolution)
    """The evolution of the widths."""

    def run(self, task: Task, budget: Budget, folder: Path | None, watcher: Watcher | None) -> SearchResult:
        """Train the supernet, then evolve widths."""
        layout = task.layout
        if budget.fits is not None:
            raise BudgetError(
                "optembed evolves widths within a limit on tables, so it cannot count dense layers. Leave 'total' out."
            )
        check_smallest("optembed", budget, layout, (1,) * len(layout.widths), task.linear)
        model = self.full_model(task)
        rows = RowThresholds(layout, task.torch_device, self.threshold_rate)
        plan = TrainingPlan(
            stage="search",
            forward=lambda ids: rows.forward(model, ids),
            evaluate=lambda: evaluate(rows.applied(model), task.valid),
            stop=lambda _: False,
            keep_best=False,
            penalty=lambda: self.pressure * torch.exp(-rows.t).sum(),
            beside=rows,
        )
        history = fit(model, task, self.training(), plan, folder, watcher)
        started = time.perf_counter()
        frozen = rows.applied(model)
        widths, auc = self._evolve(frozen, task, budget)
        first = budget.counted(task.linear)
        mask = Mask(layout, tuple(tuple(range(width)) for width in widths), first.widths if first else None)
        kept = rows.kept(model)
        return finish(
            task,
            budget,
            mask,
            self.narrow_model(task, mask),
            history=history,
            seconds=time.perf_counter() - started,
            steps=rows.steps,
            evaluated_auc=auc,
            nonzeros=sum(count * width for count, width in zip(kept, widths, strict=True)),
            dense=mask.params,
        )

    def _evolve(self, model: CTRModel, task: Task, budget: Budget) -> tuple[Genes, float]:
        layout = task.layout
        costs = tuple(int(cost) for cost in budget.costs(Layout(layout.schema, (1,) * len(layout.widths))))
        first = int(budget.costs(layout, task.linear).sum() - budget.costs(layout).sum())  # all are kept
        room = Room(layout.widths, costs, budget.limit(layout, task.linear) - first, budget.align)

        def fitness(genes: Genes) -> float:
            gate = prefix(layout, torch.tensor(genes)).float().to(task.torch_device)
            return evaluate(model, task.valid, gate).auc

        return self.evolution.best(fitness, room, np.random.default_rng([task.seed, 0]))


def prefix(layout: Layout, widths: Tensor) -> Tensor:
    """The first columns of each field: widths (..., F) to booleans (..., S)."""
    place = torch.cat([torch.arange(width) for width in layout.widths]).to(widths.device)
    return place < widths[..., torch.from_numpy(layout.owners).to(widths.device)]


class RowThresholds:
    """One threshold per field: rows whose l1 norm is below it are zero."""

    def __init__(self, layout: Layout, device: torch.device, rate: float) -> None:
        self._layout, self._rate = layout, rate
        self._owners = torch.from_numpy(layout.owners).to(device)
        self._widths = torch.tensor(layout.widths, device=device)
        self.t = torch.zeros(len(layout.widths), device=device, requires_grad=True)
        self.t.register_post_accumulate_grad_hook(self._step)
        self.steps = 0

    def forward(self, model: CTRModel, ids: Tensor) -> Tensor:
        """Training logits (B,) with the thresholds and a random width per sample and field."""
        assert isinstance(model, HeadModel)
        v = model.embedding(ids)  # (B, S)
        norms = v.new_zeros(len(ids), len(self._widths)).index_add(1, self._owners, v.abs())  # (B, F)
        rows = step(norms - self.t)[:, self._owners]  # (B, S)
        lengths = (torch.rand(len(ids), len(self._widths)).to(v.device) * self._widths).long() + 1
        return model.logits(ids, v * rows * prefix(self._layout, lengths))

    def _step(self, t: Tensor) -> None:
        """A plain gradient step, run as a hook at the end of the backward pass."""
        assert t.grad is not None
        current().add([t.grad])
        with torch.no_grad():
            t -= self._rate * t.grad
        t.grad = None
        self.steps += 1

    @torch.no_grad()
    def applied(self, model: CTRModel) -> CTRModel:
        """A copy of the model with the rows below their threshold set to zero."""
        copy = deepcopy(model).eval()
        for j, width in enumerate(self._layout.widths):
            if width:
                table = copy.embedding.table(j)
                table *= self._live(table, j)[:, None]
        return copy

    @torch.no_grad()
    def kept(self, model: CTRModel) -> list[int]:
        """Number of rows per field that are not below its threshold."""
        live = (self._live(model.embedding.table(j), j) if w else self.t[:0] for j, w in enumerate(self._layout.widths))
        return [int(rows.sum()) for rows in live]

    def _live(self, table: Tensor, field: int) -> Tensor:
        return step(table.abs().sum(1) - self.t[field])

    def tensors(self) -> Tensors:
        """State for a checkpoint, in addition to the supernet."""
        return {"t": self.t.detach(), "steps": torch.tensor(self.steps)}

    def restore(self, tensors: Tensors) -> None:
        """Restore a checkpoint."""
        with torch.no_grad():
            self.t.copy_(tensors["t"])
        self.steps = int(tensors["steps"])


class _Step(torch.autograd.Function):
    """1 if x >= 0, else 0; its gradient is 2 - 4|x| for |x| <= 0.4, then 0.4 up to 1, then 0."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        """Zeros and ones."""
        ctx.save_for_backward(x)
        return (x >= 0).float()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        """The long-tailed estimator."""
        (x,) = ctx.saved_tensors
        size = x.abs()
        slope = torch.where(size <= 0.4, 2 - 4 * size, torch.where(size <= 1, 0.4, 0.0))
        return grads[0] * slope


def step(x: Tensor) -> Tensor:
    """1 if x >= 0, else 0, with an estimated gradient."""
    found: Tensor = _Step.apply(x)  # type: ignore[no-untyped-call]
    return found
