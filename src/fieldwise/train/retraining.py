"""Retraining of the compact model."""

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final, Literal

from pydantic import Field
from torch import nn

from fieldwise.core.automatic import AUTO, chosen
from fieldwise.core.budget import Budget
from fieldwise.core.errors import SettingsError
from fieldwise.core.mask import Mask
from fieldwise.core.records import Epoch, Metrics
from fieldwise.core.store import FLOAT32, MIXED, Store, StoreText
from fieldwise.core.watcher import Watcher
from fieldwise.models.compact import compact
from fieldwise.models.joined import JoinedModel, joined_model
from fieldwise.models.model import CTRModel
from fieldwise.models.stored import StoredModel, check_fields, check_store, stored
from fieldwise.tables.embedding import FieldEmbedding
from fieldwise.tables.rounding import RoundedRows, rounding, rounding_now
from fieldwise.tables.row_factored import row_factored
from fieldwise.train.average import Before, before_of
from fieldwise.train.decay import Decay, plain_epochs
from fieldwise.train.distillation import distilled
from fieldwise.train.evaluate import evaluate
from fieldwise.train.l2 import L2, first_order_of, penalty, strength_of
from fieldwise.train.loop import fit
from fieldwise.train.plan import Condition, Training, TrainingPlan, early_stop
from fieldwise.train.task import Task, check_trained
from fieldwise.train.trained import Trained

CLEAR: Final = 0.005
"""Validation AUC that a rate may lose in its first epoch. After a pretraining that was at its best soon, a rate that is
too high loses more and does not recover it."""
ROUNDED_PATIENCE: Final = 2
"""Factor of the patience in a training that rounds tables: its first epochs are often worse than none."""


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
    or more. Every row then moves in every step. auto: 0.003; 0.01 in a training that rounds tables; 0 above a
    million weights."""
    average: Before = AUTO
    """Weight, in [0, 1), of the epochs before in a moving average of weights over epochs, as in pretraining; 0, as in
    the paper: no average. auto: as in pretraining, but 0 in a retraining that rounds tables."""
    store: StoreText | None = None
    """Stored type of tables and first-order weights: float32, float16, int8, int4, 'int8 row', 'int4 row', or 'mixed
    ["gender"]' for int4 with these fields in int8. By default that of a budget in bytes, else float32. Evaluations and
    early stopping look at the stored model."""
    rounded: bool | None = None
    """Whether tables are rounded in training as they will be stored, with straight-through gradients; by default below
    8 bits. With a rate that decays this begins after about half of the epochs; with a constant one it is a second
    training, with twice the patience."""
    drop_first_order: bool = False
    """Whether to also drop the first-order weights of fields without columns; predictions then ignore those fields."""


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
    check_fields(store, small.schema)
    small, history, other = Retraining(task, settings, store, watcher or Watcher()).at_rate(small, folder)
    return Trained(_in(store, small.eval()), history, other_seconds=other)


@dataclass(frozen=True)
class Retraining:
    """Trains models of one task, as the settings say."""

    task: Task
    settings: Retrain
    store: Store
    watcher: Watcher

    @property
    def rounds(self) -> bool:
        """Whether tables are rounded in training."""
        asked = self.settings.rounded
        return self.store.bits < 8 if asked is None else asked and self.store.is_integer

    def at_rate(self, model: CTRModel, folder: Path | None) -> tuple[CTRModel, list[Epoch], float]:
        """Train at the highest rate, and from the start again at the next if its first epoch is clearly worse.

        Returns the model, its history, and the seconds of what was given up.
        """
        task, settings = self.task, self.settings
        if settings.schedule == "constant":
            return model, self.train(model, 1.0, folder), 0.0
        high, *lower = settings.decay.rates(settings.learning_rate, chosen(settings.batch), task.start_best)
        if not lower:
            return model, self.train(model, high, folder), 0.0
        (low,) = lower
        small = deepcopy(model)
        history = self.train(small, high, folder / f"rate-{high:g}" if folder else None, is_worse)
        if not is_worse(history):
            return small, history, 0.0
        before, after = (epoch.auc for epoch in history[:2])
        self.watcher.note(
            f"After an epoch at rate {high:g}, validation AUC was {after:.4f}, less than {before:.4f} before. It is "
            f"trained from the start again, at rate {low:g}."
        )
        numbers = model.size().embedding  # tells budgets apart
        self.watcher.begin(f"retrain {numbers} parameters at rate {low:g}, seed {task.seed}", done=False)
        again = self.train(model, low, folder / f"rate-{low:g}" if folder else None)
        return model, again, sum(epoch.seconds for epoch in history)

    def train(
        self, small: CTRModel, rate: float, folder: Path | None, enough: Condition = lambda _: False
    ) -> list[Epoch]:
        """Train in place, at this multiple of the learning rate; while it decays, until `enough` holds."""
        settings, rounds = self.settings, self.rounds
        settings = settings.model_copy(update={"learning_rate": rate * settings.learning_rate})
        tables = [module for module in small.modules() if isinstance(module, FieldEmbedding)] if rounds else []
        if settings.schedule == "decay":
            epochs = min(settings.epochs, settings.decay.epochs_of(self.task.start_epochs, rounds))
            with rounding(tables, self.store) as rounded:
                return self.fit(small, settings, folder, rounded, enough, epochs)
        history = self.fit(small, settings, folder / "plain" if folder and rounds else folder)
        if rounds:
            longer = settings.model_copy(update={"patience": ROUNDED_PATIENCE * chosen(settings.patience)})
            with rounding(tables, self.store) as rounded:
                after = self.fit(small, longer, folder / "rounded" if folder else None, rounded)
            last = len(history) - 1
            history += [epoch.model_copy(update={"epoch": last + epoch.epoch}) for epoch in after[1:]]
        return history

    def fit(
        self,
        small: CTRModel,
        settings: Retrain,
        folder: Path | None,
        rounded: Sequence[RoundedRows] = (),
        enough: Condition = lambda _: False,
        decays_in: float | None = None,
    ) -> list[Epoch]:
        """Train in place, for so many epochs of a decaying rate or until the stored model stops improving."""
        task, decays = self.task, decays_in is not None
        plain = plain_epochs(decays_in) if decays_in is not None else 0

        def begin_rounding(epoch: int) -> bool:
            begins = [rows for rows in rounded if rows.on != (epoch > plain)]
            for rows in begins:
                rows.on = epoch > plain
            return bool(begins)

        def fit_scales() -> None:
            for rows in rounded:
                if rows.on:
                    rows.fit()

        strength = strength_of(settings.l2, small, settings.optimizer, bool(rounded))
        batch = chosen(settings.batch)
        squares = penalty(small, strength, batch, task.left_out)
        joined = joined_model(small, batch) if squares is not None else None  # it reads whole tables, as squares do
        plan = TrainingPlan(
            stage="retrain",
            forward=joined or row_factored(small, batch),
            evaluate=self._evaluation(small, joined, rounded),
            stop=enough if decays else early_stop(chosen(settings.patience)),
            keep_best=True,
            average=before_of(settings.average, small, "retrain", self.rounds),
            before_epoch=begin_rounding,
            penalty=squares,
            every_row=squares is not None,
            look=fit_scales,
            same_steps=small.same_steps,
            decays_in=decays_in,
            table_rate=settings.decay.table_rate if decays else 1.0,
            slow=_memorizing(small, task),
            place=int(bool(rounded) and not decays),
        )
        return fit(small, self._joined_task if joined else task, settings, plan, folder, self.watcher)

    def _evaluation(
        self, small: CTRModel, joined: JoinedModel | None, rounded: Sequence[RoundedRows]
    ) -> Callable[[], Metrics]:
        """Evaluates the stored model on validation rows."""
        exact = self.store == FLOAT32 or (bool(rounded) and self.store.by == "column")
        if joined is None or not exact:
            return lambda: evaluate(_in(self.store, small), self.task.valid)

        def as_stored() -> Metrics:
            with rounding_now(rounded):
                return evaluate(joined, self._joined_task.valid)

        return as_stored

    @cached_property
    def _joined_task(self) -> Task:
        """The rows with one id for each column of the data, in place of its tiers."""
        return self.task.joined()


def is_worse(history: list[Epoch]) -> bool:
    """Whether the first epoch of a training has a clearly lower validation AUC than its start."""
    return len(history) > 1 and history[1].auc < history[0].auc - CLEAR


def _memorizing(model: CTRModel, task: Task) -> list[nn.Parameter]:
    """The first-order weights of a model, if those of a harmful field are among them."""
    harmful = first_order_of(model, task.left_out)
    return list(harmful[0][0].parameters()) if harmful else []


def _in(store: Store, model: CTRModel) -> CTRModel | StoredModel:
    return model if store == FLOAT32 else stored(model, store)


def stored_for(settings: Retrain, budget: Budget, mask: Mask | None = None) -> Retrain:
    """The settings with the store that the budget counts, with the mask's fields in int8; refuses another."""
    if budget.unit != "bytes":
        return settings
    counts = (budget.of(mask) if mask else budget).stored
    if settings.store is not None and (budget.store == MIXED or settings.store != counts):
        raise SettingsError(
            f"[retrain] store = '{settings.store}', but the budget of {budget} counts {budget.store}. They must be "
            f"equal. Leave store out, or write the budget in {settings.store.kind}."
        )
    return settings.model_copy(update={"store": counts})
