"""Pretraining of the full model and retraining of the compact model."""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Generic, Literal, TypeVar

from pydantic import Field

from fieldwise.core.automatic import AUTO, chosen
from fieldwise.core.budget import Budget
from fieldwise.core.display import Shown, View
from fieldwise.core.errors import SettingsError
from fieldwise.core.harm import sentence
from fieldwise.core.mask import Mask
from fieldwise.core.records import Epoch, Harm
from fieldwise.core.store import FLOAT32, Store, StoreText
from fieldwise.core.watcher import Watcher
from fieldwise.models.compact import compact
from fieldwise.models.model import CTRModel
from fieldwise.models.stored import StoredModel, check_store, stored
from fieldwise.tables.embedding import FieldEmbedding
from fieldwise.tables.rounding import RoundedRows, rounding
from fieldwise.tables.row_factored import row_factored
from fieldwise.train.decay import RATES, Decay
from fieldwise.train.distillation import distilled
from fieldwise.train.evaluate import evaluate
from fieldwise.train.harmful import Condition, settle
from fieldwise.train.l2 import L2, penalty, strength_of
from fieldwise.train.loop import fit
from fieldwise.train.plan import Training, TrainingPlan, early_stop
from fieldwise.train.regularity import OrthogonalSteps, SoftOrthogonality
from fieldwise.train.task import Task, check_trained

ROUNDED_PATIENCE: Final = 2
"""Factor of the patience in a training that rounds tables: its first epochs are often worse than none."""


class Pretrain(Training):
    """Settings of pretraining, the training of the full model."""

    regularity: SoftOrthogonality = Field(default_factory=SoftOrthogonality)
    """Soft orthogonality of the tables."""
    harmful: Literal["drop", "keep"] = "drop"
    """drop: leave out fields that help on rows seen in training and hurt on others, if a training without them is
    better on validation rows; keep: do not look for them."""


class Retrain(Training):
    """Settings of retraining, the training of the compact model."""

    distil: float = Field(0.5, ge=0, le=1)
    """Weight of the full model's predictions in the labels, in [0, 1]; 0, as in the paper: clicks only."""
    schedule: Literal["constant", "decay"] = "decay"
    """constant, as in the paper: the learning rate stays, until early stopping; decay: it falls to zero, as `decay`
    says, without early stopping."""
    decay: Decay = Field(default_factory=Decay)
    """The course of the learning rate if `schedule` is decay."""
    l2: L2 = AUTO
    """Half the squares of the weights of tables are added to a batch's summed loss, times this; 0, as in the paper,
    or more. Every row then moves in every step. auto: 0.003 if tables have at most a million weights, else 0."""
    store: StoreText | None = None
    """Stored type of tables and first-order weights: float32, float16, int8, int4, 'int8 row' or 'int4 row'. By default
    that of a budget in bytes, else float32. Evaluations and early stopping look at the stored model."""
    rounded: bool | None = None
    """Whether a second training follows that rounds tables as they will be stored, with straight-through gradients and
    twice the patience; by default below 8 bits."""
    drop_first_order: bool = False
    """Whether to also drop the first-order weights of fields without columns; predictions then ignore those fields."""


M = TypeVar("M", bound="CTRModel | StoredModel", covariant=True)


@dataclass(frozen=True, repr=False)
class Trained(Shown, Generic[M]):
    """A model with the weights of its best validation AUC, and its history."""

    model: M
    history: list[Epoch]
    harms: list[Harm] = field(default_factory=list)
    """Fields that pretraining suspected of harm, and what became of each."""
    other_seconds: float = 0.0
    """Time of what was trained beside `model`: without harmful fields, or with another learning rate."""

    @property
    def epochs(self) -> int:
        """Epochs of the training."""
        return len(self.history) - 1

    @property
    def best_epoch(self) -> int:
        """The epoch with the best validation AUC, the first of equals."""
        return max(self.history, key=lambda epoch: epoch.auc).epoch

    @property
    def seconds(self) -> float:
        """Total training time, including interrupted runs that were resumed."""
        return sum(epoch.seconds for epoch in self.history) + self.other_seconds

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
            (
                f"{size.columns:,} columns, {size.embedding:,} embedding parameters, {size.dense:,} dense weights",
                *map(sentence, self.harms),
            ),
            ("epoch", "loss", "valid AUC", "valid log loss", "seconds"),
            rows,
        )


def pretrain(
    task: Task,
    settings: Pretrain | None = None,
    folder: Path | None = None,
    watcher: Watcher | None = None,
) -> Trained[CTRModel]:
    """Train the task's full model until early stopping.

    Fields that are found to be harmful are left out (`Pretrain.harmful`): the model has no columns and no first-order
    weights of them.
    """
    settings = (settings or Pretrain()).fitted(*task.counts)
    model = task.starting_model()

    def train(model: CTRModel, enough: Condition, place: int) -> list[Epoch]:
        home = folder / f"without-{place}" if folder and place else folder
        return fit(model, task, settings, _pretraining(model, task, settings, enough, place), home, watcher)

    history = train(model, lambda _: False, 0)
    if settings.harmful == "keep":
        return Trained(model.eval(), history)
    found = settle(task, model.eval(), history, train, watcher or Watcher())
    return Trained(found.model, found.history, found.harms, found.seconds)


def check_regularity(settings: Pretrain) -> None:
    """Refuse a penalty on every row with an optimizer that moves only rows of a batch."""
    regularity = settings.regularity
    if regularity.strength and regularity.place == "loss" and settings.optimizer == "rowwise-adagrad":
        raise SettingsError(
            "[pretrain] regularity.place = 'loss' moves every row of every table, and optimizer = 'rowwise-adagrad' "
            "only rows that a batch reads. Choose place = 'step', or adam."
        )


def _pretraining(model: CTRModel, task: Task, settings: Pretrain, enough: Condition, place: int) -> TrainingPlan:
    """The plan of a training of all columns; it also stops when `enough` holds."""
    regularity, stop = settings.regularity, early_stop(chosen(settings.patience))
    where = regularity.place if regularity.strength else None
    check_regularity(settings)
    apart = OrthogonalSteps(regularity, model.embedding, chosen(settings.batch))
    return TrainingPlan(
        stage="pretrain",
        forward=row_factored(model),
        evaluate=lambda: evaluate(model, task.valid),
        stop=lambda history: stop(history) or enough(history),
        keep_best=True,
        penalty=(lambda: regularity.penalty(model.embedding)) if where == "loss" else None,
        every_row=where == "loss",
        after_step=(lambda optimizer: apart.step(optimizer.settle)) if where == "step" else lambda _: None,
        same_steps=model.same_steps,
        beside=apart,
        place=place,
    )


def retrain(
    task: Task,
    model: CTRModel,
    settings: Retrain | None = None,
    folder: Path | None = None,
    watcher: Watcher | None = None,
) -> Trained[CTRModel | StoredModel]:
    """Train a copy of a compact model.

    It learns from clicks and, by default, from the predictions of the task's starting model, the pretrained full model
    (`Retrain.distil`). With a `Retrain.store` other than float32, the result is the stored model.
    """
    check_trained(model, "fw.search(...).model")
    settings = (settings or Retrain()).fitted(*task.counts)
    task = distilled(task, settings.distil)
    small = deepcopy(model).to(task.torch_device)
    if settings.drop_first_order:
        small = compact(small, Mask.all(small.layout), drop_first_order=True)
    store = settings.store or FLOAT32
    check_store(small.settings, store)
    rounds = store.bits < 8 if settings.rounded is None else settings.rounded and store.is_integer
    home = folder / "plain" if folder and rounds else folder
    small, settings, history, other = _at_best_rate(small, task, settings, store, home, watcher)
    if rounds:  # first without: a training that rounds from the start ends worse
        longer = settings.model_copy(update={"patience": ROUNDED_PATIENCE * chosen(settings.patience)})
        with rounding(_trained_tables(small), store) as rounded:
            after = _retrain(small, task, longer, store, folder / "rounded" if folder else None, watcher, rounded)
        last = len(history) - 1
        history += [epoch.model_copy(update={"epoch": last + epoch.epoch}) for epoch in after[1:]]
    return Trained(_in(store, small.eval()), history, other_seconds=other)


def _at_best_rate(
    model: CTRModel, task: Task, settings: Retrain, store: Store, folder: Path | None, watcher: Watcher | None
) -> tuple[CTRModel, Retrain, list[Epoch], float]:
    """Train a copy at each rate: the best on validation rows, its settings and history, and the others' seconds."""
    rates = settings.decay.rates(task.start_best, bool(task.left_out)) if settings.schedule == "decay" else RATES[:1]
    if len(rates) == 1:
        return model, settings, _retrain(model, task, settings, store, folder, watcher), 0.0
    found, watcher = [], watcher or Watcher()
    for place, rate in enumerate(rates):
        if place:
            numbers = model.size().embedding  # tells budgets apart
            watcher.begin(f"retrain {numbers} parameters at rate {rate:g}, seed {task.seed}", done=False)
        own = settings.model_copy(update={"decay": settings.decay.model_copy(update={"rate": rate})})
        home, small = folder / f"rate-{rate:g}" if folder else None, deepcopy(model)
        found.append((small, own, _retrain(small, task, own, store, home, watcher)))
    aucs = [max(epoch.auc for epoch in history) for _, _, history in found]
    best = aucs.index(max(aucs))
    tried = ", ".join(f"{rate:g} ({auc:.4f})" for rate, auc in zip(rates, aucs, strict=True))
    watcher.note(f"Retrained at rates {tried}; kept rate {rates[best]:g}, by validation AUC.")
    other = sum(epoch.seconds for place, each in enumerate(found) for epoch in each[2] if place != best)
    return *found[best], other


def _retrain(
    small: CTRModel,
    task: Task,
    settings: Retrain,
    store: Store,
    folder: Path | None,
    watcher: Watcher | None,
    rounded: Sequence[RoundedRows] = (),
) -> list[Epoch]:
    """Train in place until the stored model stops improving."""
    decays, decay = settings.schedule == "decay", settings.decay.fitted(task.start_epochs)
    if decays:
        (highest,) = decay.rates(None)
        rate, epochs = settings.learning_rate * highest, min(settings.epochs, chosen(decay.epochs))
        settings = settings.model_copy(update={"learning_rate": rate, "epochs": epochs})

    def fit_scales() -> None:
        for rows in rounded:
            rows.fit()

    strength = strength_of(settings.l2, small, settings.optimizer)
    squares = penalty(small, strength, chosen(settings.batch), task.left_out)
    plan = TrainingPlan(
        stage="retrain",
        forward=row_factored(small),
        evaluate=lambda: evaluate(_in(store, small), task.valid),
        stop=(lambda _: False) if decays else early_stop(chosen(settings.patience)),
        keep_best=True,
        penalty=squares,
        every_row=squares is not None,
        look=fit_scales,
        same_steps=small.same_steps,
        decays=decays,
        table_rate=decay.table_rate if decays else 1.0,
        place=int(bool(rounded)),
    )
    return fit(small, task, settings, plan, folder, watcher)


def _trained_tables(model: CTRModel) -> list[FieldEmbedding]:
    return [module for module in model.modules() if isinstance(module, FieldEmbedding)]


def _in(store: Store, model: CTRModel) -> CTRModel | StoredModel:
    return model if store == FLOAT32 else stored(model, store)


def stored_for(settings: Retrain, budget: Budget) -> Retrain:
    """The settings with the store that the budget counts; refuses another."""
    if budget.unit != "bytes":
        return settings
    counts = Store(budget.kind)
    if settings.store is not None and settings.store != counts:
        raise SettingsError(
            f"[retrain] store = '{settings.store}', but the budget of {budget} counts {counts}. They must be equal. "
            f"Leave store out, or write the budget in {settings.store.kind}."
        )
    return settings.model_copy(update={"store": counts})
