"""The gated searches: training batches update the weights and validation batches the gate, alternately.

The framework of the paper (Algorithm 1, Search). Our choices: the search ends with exactly the best-scored columns that
fit the budget, and the gate's step runs the model in evaluation mode, so that its batch statistics do not change.
"""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from pydantic import Field, create_model
from torch import Tensor

from fieldwise.core.automatic import chosen
from fieldwise.core.budget import Budget, BudgetText
from fieldwise.core.mask import Mask
from fieldwise.core.records import Epoch
from fieldwise.core.registry import resolve
from fieldwise.core.select import select
from fieldwise.core.watcher import Watcher
from fieldwise.data.batches import Batch
from fieldwise.gates import GATES
from fieldwise.gates.gate import Gate, GateSettings
from fieldwise.models.compact import compact
from fieldwise.models.model import CTRModel
from fieldwise.processes.ranks import current
from fieldwise.processes.streams import shared
from fieldwise.searches.search import SearchResult, finish
from fieldwise.searches.total import typed_budget
from fieldwise.searches.trace import Trace
from fieldwise.searches.trained import TrainedSearch
from fieldwise.tables.row_factored import row_factored
from fieldwise.train.evaluate import evaluate
from fieldwise.train.loop import fit
from fieldwise.train.loss import part_of_loss
from fieldwise.train.plan import TrainingPlan
from fieldwise.train.task import Task


class Gated(TrainedSearch):
    """A search with any gate; `GATES` has one subclass per gate, which fixes its type."""

    shards = True

    gate: GateSettings = Field(default_factory=GateSettings)
    """The gate and its step sizes."""
    stages: tuple[BudgetText, ...] = ()
    """Larger budgets to search first, each within the columns that the previous one kept (multi-stage search)."""
    trace_every: int = Field(10, ge=1)
    """Steps between two recorded rows of scores, at least 1."""

    def stop(self, stage: "Stage", history: list[Epoch]) -> bool:
        """Whether the search may stop before its last epoch."""
        return False

    def run(self, task: Task, budget: Budget, folder: Path | None, watcher: Watcher | None) -> SearchResult:
        """Search stage by stage, the last with the budget itself."""
        model = task.starting_model()
        mask = Mask.all(model.layout)
        done: list[Stage] = []
        for place, bound in enumerate((*self.stages, budget)):
            typed = typed_budget(task.model, task.schema, bound).unmixed()
            target = task.bound(replace(typed, align=budget.align))
            target = target.fixed(mask.full, task.linear).within(model.layout, model.linear)
            stage = Stage(self, task, model, mask, target, place)
            stage.run(folder / f"stage-{place}" if folder else None, watcher)
            model, mask = stage.small, stage.mask
            done.append(stage)
        return finish(
            task,
            budget,
            mask,
            model,
            start=self.start_of(task),
            history=[epoch for stage in done for epoch in stage.history],
            traces=tuple(stage.trace for stage in done),
            steps=sum(stage.trace.steps for stage in done),
            evaluated_auc=done[-1].evaluated_auc,
            raw_live=done[-1].raw_live,
            reactivations=sum(int(stage.trace.tensors()["reactivated"].sum()) for stage in done),
        )


class HardGated(Gated):
    """A search with a hard gate, which can stop once its size is near the budget."""

    patience: int = Field(1, ge=0)
    """Epochs near the target size without a better validation AUC before the search stops; 0: never stop early."""
    near: float = Field(0.25, ge=0)
    """Largest distance between live cost and target that counts as near, as a fraction of the target."""

    def stop(self, stage: "Stage", history: list[Epoch]) -> bool:
        """Whether the size is near the target and the best epoch there is `patience` epochs old."""
        if not self.patience or len(history) < 2:
            return False
        steps = stage.trace.steps // (len(history) - 1)
        costs = stage.trace.tensors()["cost"].float().split(steps)
        gap = [abs(float(cost[-max(1, steps // 10) :].mean()) / stage.gate.limit - 1) for cost in costs]
        away = [place for place, distance in enumerate(gap, start=1) if distance > self.near]
        aucs = [epoch.auc for epoch in history][max(away, default=0) + 1 :]
        return len(aucs) > self.patience and aucs.index(max(aucs)) < len(aucs) - self.patience


class Stage:
    """One search with a gate, over the columns of a model."""

    def __init__(
        self, settings: Gated, task: Task, model: CTRModel, before: Mask, budget: Budget, place: int = 0
    ) -> None:
        self._settings, self._task, self._model, self._place = settings, task, model, place
        self._forward = row_factored(model, chosen(settings.batch))
        self._before, self._budget = before, budget
        self._linear = budget.counted(model.linear)
        costs = torch.from_numpy(budget.costs(model.layout, self._linear)).to(task.torch_device)
        self.gate: Gate = settings.gate.build(costs, budget.limit(model.layout, self._linear))
        steps = settings.epochs * math.ceil(len(task.train) / chosen(settings.batch))
        self.trace = Trace.over(before, self.gate.limit, settings.trace_every, steps, task.torch_device)
        self.history: list[Epoch] = []
        owners = [model.layout.owners, *([self._linear.owners] if self._linear else [])]
        self._owners = torch.from_numpy(np.concatenate(owners))
        self._watcher: Watcher = Watcher()

    def run(self, folder: Path | None, watcher: Watcher | None) -> None:
        """Search, then select exactly the best columns within the budget."""
        settings, self._watcher = self._settings, watcher or Watcher()
        plan = TrainingPlan(
            stage="search",
            forward=lambda ids: self._forward(ids, self._draw()),
            evaluate=lambda: evaluate(self._model, self._task.valid, self.gate.for_evaluation()),
            stop=lambda history: settings.stop(self, history),
            keep_best=False,
            valid_step=self._gate_step,
            look=self._report,
            same_steps=self._model.same_steps,
            beside=self,
            place=self._place,
        )
        self.history = fit(self._model, self._task, settings.training(), plan, folder, watcher)
        inner = select(self.gate.scores().cpu().numpy(), self._model.layout, self._budget, self._linear)
        values = torch.from_numpy(inner.over(self._linear)).float().to(self._task.torch_device)
        self.raw_live = int(self.gate.live().sum())
        self.evaluated_auc = evaluate(self._model, self._task.valid, self.gate.settled(values)).auc
        self.mask = self._before.then(inner)
        self.small = compact(self._model, inner).eval()

    def _gate_step(self, batch: Batch) -> None:
        """One step of the gate on a validation batch. Weights get no gradient."""
        model, values = self._model, self._draw().requires_grad_()
        model.eval()
        with torch.enable_grad():
            loss = part_of_loss(self._gated(batch.ids, values), batch)
        (grad,) = torch.autograd.grad(loss, values)
        current().add([grad])
        model.train()
        before = self.gate.live()
        self.gate.step(grad)
        self.trace.record(self.gate, before, self.gate.live())

    def _draw(self) -> Tensor:
        """The gate's values, the same in all processes."""
        with shared():
            return self.gate.draw()

    def _gated(self, ids: Tensor, values: Tensor) -> Tensor:
        """Logits (B,) with a gradient only for the gate's values."""
        return self._model.gated(ids, values) if self._forward is self._model else self._forward(ids, values)

    def _report(self) -> None:
        """Report the live columns to the watcher."""
        live = self.gate.live()
        names = self._model.layout.schema.names
        widths = self._owners[live.cpu()].bincount(minlength=len(names)).tolist()
        cost = int((self.gate.costs * live).sum())
        self._watcher.gate(self.trace.steps, sum(widths), cost, self.gate.limit, dict(zip(names, widths, strict=True)))

    def tensors(self) -> dict[str, Tensor]:
        """State for a checkpoint, in addition to the model."""
        return {"alpha": self.gate.alpha, **self.trace.tensors()}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Restore a checkpoint."""
        self.gate.alpha.copy_(tensors["alpha"])
        self.trace.restore(tensors)


def search_with(gate: type[GateSettings]) -> type[Gated]:
    """The search with one gate: a subclass of `Gated` named like the gate, `SAM` for `SAMGate`."""
    return create_model(
        gate.__name__.removesuffix("Gate"),
        __base__=HardGated if gate.hard else Gated,
        __module__=__name__,
        __doc__=gate.__doc__,
        gate=(gate, Field(default_factory=gate, description="The gate and its step sizes.")),
    )


# Classes of this module, so that names in settings, pickles and imports find them.
globals().update({made.__name__: made for made in (search_with(resolve("gate", GATES, name)) for name in GATES)})
