"""Pretraining of the full model."""

from dataclasses import replace
from pathlib import Path
from typing import Literal

from pydantic import Field

from fieldwise.core.automatic import AUTO, chosen
from fieldwise.core.errors import SettingsError
from fieldwise.core.records import Epoch
from fieldwise.core.schema import Schema
from fieldwise.core.watcher import Watcher
from fieldwise.models.compact import with_tiers
from fieldwise.models.model import CTRModel, HeadModel, OwnModel
from fieldwise.processes.ranks import current
from fieldwise.tables.row_factored import row_factored
from fieldwise.train.average import Before, before_of
from fieldwise.train.evaluate import evaluate
from fieldwise.train.harmful import settle
from fieldwise.train.loop import fit
from fieldwise.train.plan import Training, TrainingPlan, early_stop
from fieldwise.train.regularity import OrthogonalSteps, SoftOrthogonality
from fieldwise.train.task import Task
from fieldwise.train.trained import Trained


class Pretrain(Training):
    """Settings of pretraining, the training of the full model."""

    regularity: SoftOrthogonality = Field(default_factory=SoftOrthogonality)
    """Soft orthogonality of the tables."""
    average: Before = AUTO
    """Weight, in [0, 1), of the epochs before in a moving average of the model's weights over epochs, which is kept
    where its validation AUC is the best; 0, as in the paper: no average. auto: 2/3 for models of at most 2^24 weights,
    else 0."""
    harmful: Literal["drop", "keep"] = "drop"
    """drop: leave out fields that help on rows seen in training and hurt on others, if a training without them is
    better on validation rows; keep: do not look for them."""


def pretrain(
    task: Task,
    settings: Pretrain | None = None,
    folder: Path | None = None,
    watcher: Watcher | None = None,
) -> Trained[CTRModel]:
    """Train the task's full model until early stopping.

    Fields that are found to be harmful are left out (`Pretrain.harmful`): the model has no columns and no first-order
    weights of them. The tiers of a column are trained as one table, and split at the end.
    """
    if _joins_tiers(task):
        return split_tiers(pretrain(task.joined(), settings, folder, watcher), task.schema)
    settings = (settings or Pretrain()).fitted(*task.counts)
    model = task.starting_model()

    def train(model: CTRModel, place: int) -> list[Epoch]:
        home = folder / f"without-{place}" if folder and place else folder
        return fit(model, task, settings, _pretraining(model, task, settings, place), home, watcher)

    history = train(model, 0)
    if settings.harmful == "keep":
        return Trained(model.eval(), history)
    found = settle(task, model.eval(), history, train, watcher or Watcher())
    return Trained(found.model, found.history, found.harms, found.seconds)


def split_tiers(trained: Trained[CTRModel], schema: Schema) -> Trained[CTRModel]:
    """What was trained with the tiers of every column joined, for rows of the schema with tiers."""
    assert isinstance(trained.model, HeadModel)
    return replace(trained, model=with_tiers(trained.model, schema))


def _joins_tiers(task: Task) -> bool:
    """Whether the tiers of a column are trained as one table: with all columns they are the same model, but slower.

    Not for a model of the user's, which has a vector for each, nor where processes hold parts of tables.
    """
    new, whole = task.start is None, current().split_from is None
    return new and whole and isinstance(task.model, OwnModel) and task.schema.joined is not task.schema


def check_regularity(settings: Pretrain) -> None:
    """Refuse a penalty on every row with an optimizer that moves only rows of a batch."""
    regularity = settings.regularity
    if regularity.strength and regularity.place == "loss" and settings.optimizer == "rowwise-adagrad":
        raise SettingsError(
            "[pretrain] regularity.place = 'loss' moves every row of every table, and optimizer = 'rowwise-adagrad' "
            "only rows that a batch reads. Choose place = 'step', or adam."
        )


def _pretraining(model: CTRModel, task: Task, settings: Pretrain, place: int) -> TrainingPlan:
    """The plan of a training of all columns."""
    regularity = settings.regularity
    where = regularity.place if regularity.strength else None
    check_regularity(settings)
    apart = OrthogonalSteps(regularity, model.embedding, chosen(settings.batch))
    return TrainingPlan(
        stage="pretrain",
        forward=row_factored(model, chosen(settings.batch)),
        evaluate=lambda: evaluate(model, task.valid),
        stop=early_stop(chosen(settings.patience)),
        keep_best=True,
        average=before_of(settings.average, model, "pretrain"),
        penalty=(lambda: regularity.penalty(model.embedding)) if where == "loss" else None,
        every_row=where == "loss",
        after_step=(lambda optimizer: apart.step(optimizer.settle)) if where == "step" else lambda _: None,
        same_steps=model.same_steps,
        beside=apart,
        place=place,
    )
