"""The gated searches: weights on training batches, a gate on validation batches, step by step in turn.

The framework of the paper (Algorithm 1, Search). Ours: the exact finish (the best-scored columns that fit the budget),
and that the gate's step sees the model as an evaluation sees it, without touching its statistics.
"""

import math
from dataclasses import replace
from pathlib import Path

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional

from fieldwise.core.budget import Budget, BudgetText
from fieldwise.core.mask import Mask
from fieldwise.core.records import Epoch, SearchSummary
from fieldwise.core.select import select
from fieldwise.core.watcher import Watcher
from fieldwise.data.batches import Batch
from fieldwise.gates import ham, ham_p, sam, sam_gs, sam_sigmoid
from fieldwise.gates.gate import Gate, GateSettings
from fieldwise.models.compact import compact
from fieldwise.models.model import CTRModel
from fieldwise.searches.search import Search, SearchResult
from fieldwise.searches.trace import Trace
from fieldwise.tables.optimizer import Method
from fieldwise.tables.row_factored import row_factored
from fieldwise.train.evaluate import evaluate
from fieldwise.train.loop import Precision, Training, TrainingPlan, fit
from fieldwise.train.task import Task


class Gated(Search):
    """What all gated searches share; each names its gate."""

    gate: GateSettings
    """The gate and its steps."""
    epochs: int = Field(10, ge=1)
    """Passes over the training rows; the paper's 10."""
    batch: int = Field(2048, ge=2)
    """Rows per step, of training and validation batches alike."""
    learning_rate: float = Field(1e-3, gt=0)
    """Of the optimizer, on the weights."""
    optimizer: Method = "adam"
    """As in pretraining."""
    precision: Precision = "float32"
    """As in pretraining."""
    stages: tuple[BudgetText, ...] = ()
    """Larger budgets to search first, each from the columns the one before kept (multi-stage search)."""
    trace_every: int = Field(10, ge=1)
    """Steps between two recorded rows of scores."""

    def stop(self, stage: "Stage", history: list[Epoch]) -> bool:
        """Whether the search may end before its last epoch; only a hard, deterministic gate can tell."""
        return False

    def run(self, task: Task, budget: Budget, folder: Path | None, watcher: Watcher | None) -> SearchResult:
        """Searches stage after stage, the last with the budget itself."""
        model = task.starting_model()
        mask = Mask.all(model.layout)
        done: list[Stage] = []
        for place, bound in enumerate((*self.stages, budget)):
            target = replace(bound, align=budget.align).fixed(mask.full).within(mask.layout)
            stage = Stage(self, task, model, mask, target, place)
            stage.run(folder / f"stage-{place}" if folder else None, watcher)
            model, mask = stage.small, stage.mask
            done.append(stage)
        summary = SearchSummary(
            steps=sum(stage.trace.steps for stage in done),
            epochs=sum(len(stage.history) - 1 for stage in done),
            evaluated_auc=done[-1].evaluated_auc,
            selected_auc=evaluate(model, task.valid).auc,
            raw_live=done[-1].raw_live,
            reactivations=sum(int(stage.trace.tensors()["reactivated"].sum()) for stage in done),
        )
        history = tuple(epoch for stage in done for epoch in stage.history)
        traces = tuple(stage.trace for stage in done)
        seconds = sum(epoch.seconds for epoch in history)
        return SearchResult(budget, mask, model, summary, history, traces, seconds)


class Stage:
    """One search of a gate, over the columns that a model has."""

    def __init__(
        self, settings: Gated, task: Task, model: CTRModel, before: Mask, budget: Budget, place: int = 0
    ) -> None:
        self._settings, self._task, self._model, self._place = settings, task, model, place
        self._forward = row_factored(model)
        self._before, self._budget = before, budget
        costs = torch.from_numpy(budget.costs(model.layout)).to(task.torch_device)
        self.gate: Gate = settings.gate.build(costs, budget.limit(model.layout))
        steps = settings.epochs * math.ceil(len(task.train) / settings.batch)
        self.trace = Trace.over(before, self.gate.limit, settings.trace_every, steps, task.torch_device)
        self.history: list[Epoch] = []
        self._owners = torch.from_numpy(model.layout.owners)
        self._watcher: Watcher = Watcher()

    def run(self, folder: Path | None, watcher: Watcher | None) -> None:
        """Searches, then selects exactly the best columns within the budget."""
        settings, self._watcher = self._settings, watcher or Watcher()
        training = Training(
            batch=settings.batch,
            learning_rate=settings.learning_rate,
            optimizer=settings.optimizer,
            precision=settings.precision,
            epochs=settings.epochs,
        )
        plan = TrainingPlan(
            stage="search",
            forward=lambda ids: self._forward(ids, self.gate.draw()),
            evaluate=lambda: evaluate(self._model, self._task.valid, self.gate.for_evaluation()),
            stop=lambda history: settings.stop(self, history),
            keep_best=False,
            valid_step=self._gate_step,
            look=self._tell,
            same_steps=True,
            beside=self,
            place=self._place,
        )
        self.history = fit(self._model, self._task, training, plan, folder, watcher)
        inner = select(self.gate.scores().cpu().numpy(), self._model.layout, self._budget)
        values = torch.from_numpy(inner.vector).float().to(self._task.torch_device)
        self.raw_live = int(self.gate.live().sum())
        self.evaluated_auc = evaluate(self._model, self._task.valid, self.gate.settled(values)).auc
        self.mask = self._before.then(inner)
        self.small = compact(self._model, inner).eval()

    def _gate_step(self, batch: Batch) -> None:
        """One step of the gate on a validation batch; no weight gets a gradient."""
        model, values = self._model, self.gate.draw().requires_grad_()
        model.eval()
        with torch.enable_grad():
            logits = self._gated(batch.ids, values).float()
            loss = functional.binary_cross_entropy_with_logits(logits, batch.labels)
        (grad,) = torch.autograd.grad(loss, values)
        model.train()
        before = self.gate.live()
        self.gate.step(grad)
        self.trace.record(self.gate, before, self.gate.live())

    def _gated(self, ids: Tensor, values: Tensor) -> Tensor:
        """Logits (B,) through which the gate's values alone get a gradient."""
        if self._forward is not self._model:
            return self._forward(ids, values)
        with torch.no_grad():
            v = self._model.embedding(ids)  # (B, S)
        return self._model.logits(ids, v * values)

    def _tell(self) -> None:
        """Tells the watcher what is live."""
        live = self.gate.live()
        names = self._model.layout.schema.names
        widths = self._owners[live.cpu()].bincount(minlength=len(names)).tolist()
        cost = int((self.gate.costs * live).sum())
        self._watcher.gate(self.trace.steps, sum(widths), cost, self.gate.limit, dict(zip(names, widths, strict=True)))

    def tensors(self) -> dict[str, Tensor]:
        """What a checkpoint keeps beside the model."""
        return {"alpha": self.gate.alpha, **self.trace.tensors()}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Takes a checkpoint back."""
        self.gate.alpha.copy_(tensors["alpha"])
        self.trace.restore(tensors)


class HAM(Gated):
    """The paper's method: a hard gate, whose evaluated model is the selected model."""

    gate: ham.HAM = Field(default_factory=ham.HAM)
    """The gate and its steps."""
    patience: int = Field(1, ge=0)
    """Stop once the size has been near the target for so many epochs with no better validation AUC; 0: never."""
    near: float = Field(0.25, ge=0)
    """How near the live cost must be to the target, as a share of it, to count as there."""

    def stop(self, stage: Stage, history: list[Epoch]) -> bool:
        """Near the target, and the best of the epochs there is `patience` epochs old."""
        if not self.patience or len(history) < 2:
            return False
        steps = stage.trace.steps // (len(history) - 1)
        costs = stage.trace.tensors()["cost"].float().split(steps)
        gap = [abs(float(cost[-max(1, steps // 10) :].mean()) / stage.gate.limit - 1) for cost in costs]
        away = [place for place, distance in enumerate(gap, start=1) if distance > self.near]
        aucs = [epoch.auc for epoch in history][max(away, default=0) + 1 :]
        return len(aucs) > self.patience and aucs.index(max(aucs)) < len(aucs) - self.patience


class SAM(Gated):
    """Soft masks in [0, 1] (DNIS)."""

    gate: sam.SAM = Field(default_factory=sam.SAM)
    """The gate and its steps."""


class SamSigmoid(Gated):
    """Soft masks through a sigmoid."""

    gate: sam_sigmoid.SamSigmoid = Field(default_factory=sam_sigmoid.SamSigmoid)
    """The gate and its steps."""


class SamGS(Gated):
    """Soft masks under Gumbel noise."""

    gate: sam_gs.SamGS = Field(default_factory=sam_gs.SamGS)
    """The gate and its steps."""


class HamP(Gated):
    """Hard random masks."""

    gate: ham_p.HamP = Field(default_factory=ham_p.HamP)
    """The gate and its steps."""
