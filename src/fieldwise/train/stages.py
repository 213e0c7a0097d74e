"""Pretraining the full model and retraining the compact one."""

from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path

from pydantic import Field

from fieldwise.core.mask import Mask
from fieldwise.core.records import Epoch
from fieldwise.core.watcher import Watcher
from fieldwise.models.compact import compact
from fieldwise.models.model import CTRModel
from fieldwise.tables.row_factored import row_factored
from fieldwise.train.distillation import distilled
from fieldwise.train.evaluate import evaluate
from fieldwise.train.loop import fit
from fieldwise.train.plan import Training, TrainingPlan, early_stop
from fieldwise.train.regularity import OrthogonalSteps, SoftOrthogonality
from fieldwise.train.task import Task


class Pretrain(Training):
    """How the full model is trained."""

    regularity: SoftOrthogonality = Field(default_factory=SoftOrthogonality)
    """Soft orthogonality of the tables."""


class Retrain(Training):
    """How the compact model is trained on."""

    distil: float = Field(0.5, ge=0, le=1)
    """Share of the full model's predictions in the labels that are learned; 0, as in the paper: clicks alone."""
    drop_first_order: bool = False
    """Whether fields that keep no column lose their first-order weights too, and are no longer needed."""


@dataclass(frozen=True)
class Trained:
    """A model at its best validation AUC, and how it got there."""

    model: CTRModel
    history: list[Epoch]

    @property
    def seconds(self) -> float:
        """Time spent, whether in one go or resumed."""
        return sum(epoch.seconds for epoch in self.history)


def pretrain(
    task: Task,
    settings: Pretrain | None = None,
    folder: Path | None = None,
    watcher: Watcher | None = None,
) -> Trained:
    """Trains the task's full model until early stop."""
    settings = settings or Pretrain()
    model = task.starting_model()
    regularity = settings.regularity
    place = regularity.place if regularity.strength else None
    apart = OrthogonalSteps(regularity, model.embedding, settings.batch)
    plan = TrainingPlan(
        stage="pretrain",
        forward=row_factored(model),
        evaluate=lambda: evaluate(model, task.valid),
        stop=early_stop(settings.patience),
        keep_best=True,
        penalty=(lambda: regularity.penalty(model.embedding)) if place == "loss" else None,
        every_row=place == "loss",
        after_step=(lambda optimizer: apart.step(optimizer.settle)) if place == "step" else lambda _: None,
        same_steps=True,
        beside=apart,
    )
    return _train(model, task, settings, plan, folder, watcher)


def retrain(
    task: Task,
    model: CTRModel,
    settings: Retrain | None = None,
    folder: Path | None = None,
    watcher: Watcher | None = None,
) -> Trained:
    """Trains a compact model on until early stop; the model given is left as it was.

    It learns from clicks and from what the task's starting model, the full one, predicts (`distil`).
    """
    settings = settings or Retrain()
    task = distilled(task, settings.distil)
    small = deepcopy(model).to(task.torch_device)
    if settings.drop_first_order:
        small = compact(small, Mask.all(small.layout), drop_first_order=True)
    plan = TrainingPlan(
        stage="retrain",
        forward=row_factored(small),
        evaluate=lambda: evaluate(small, task.valid),
        stop=early_stop(settings.patience),
        keep_best=True,
        same_steps=True,
    )
    return _train(small, task, settings, plan, folder, watcher)


def _train(
    model: CTRModel,
    task: Task,
    settings: Training,
    plan: TrainingPlan,
    folder: Path | None,
    watcher: Watcher | None,
) -> Trained:
    history = fit(model, task, settings, plan, folder, watcher)
    return Trained(model.eval(), history)
