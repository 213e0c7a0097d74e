"""Pretraining of the full model and retraining of the compact model."""

from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path

from pydantic import Field

from fieldwise.core.display import Shown, View
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
from fieldwise.train.task import Task, check_trained


class Pretrain(Training):
    """Settings of pretraining, the training of the full model."""

    regularity: SoftOrthogonality = Field(default_factory=SoftOrthogonality)
    """Soft orthogonality of the tables."""


class Retrain(Training):
    """Settings of retraining, the training of the compact model."""

    distil: float = Field(0.5, ge=0, le=1)
    """Weight of the full model's predictions in the labels, in [0, 1]; 0, as in the paper: clicks only."""
    drop_first_order: bool = False
    """Whether to also drop the first-order weights of fields without columns; predictions then ignore those fields."""


@dataclass(frozen=True, repr=False)
class Trained(Shown):
    """A model with the weights of its best validation AUC, and its history."""

    model: CTRModel
    history: list[Epoch]

    @property
    def seconds(self) -> float:
        """Total training time, including interrupted runs that were resumed."""
        return sum(epoch.seconds for epoch in self.history)

    def view(self) -> View:
        """The size of the model, and its epochs."""
        size, best = self.model.size(), max(self.history, key=lambda epoch: epoch.auc)
        rows = tuple(
            (
                e.epoch,
                "" if e.loss is None else f"{e.loss:.4f}",
                f"{e.auc:.4f}",
                f"{e.log_loss:.4f}",
                f"{e.seconds:.1f}",
            )
            for e in self.history
        )
        return View(
            f"Trained {type(self.model.settings).__name__}: best validation AUC {best.auc:.4f} in epoch {best.epoch}, "
            f"{self.seconds:.1f} s",
            (f"{size.columns:,} columns, {size.embedding:,} embedding parameters, {size.dense:,} dense weights",),
            ("epoch", "loss", "valid AUC", "valid log loss", "seconds"),
            rows,
        )


def pretrain(
    task: Task,
    settings: Pretrain | None = None,
    folder: Path | None = None,
    watcher: Watcher | None = None,
) -> Trained:
    """Train the task's full model until early stopping."""
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
        same_steps=model.same_steps,
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
    """Train a copy of a compact model until early stopping.

    It learns from clicks and, by default, from the predictions of the task's starting model, the pretrained full model
    (`Retrain.distil`).
    """
    check_trained(model, "fw.search(...).model")
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
        same_steps=small.same_steps,
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
