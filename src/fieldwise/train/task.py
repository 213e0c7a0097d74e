"""The input of training and searching."""

from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, Protocol, get_args

import numpy as np
import torch

from fieldwise.core.budget import Budget
from fieldwise.core.display import Shown, View
from fieldwise.core.errors import SettingsError
from fieldwise.core.mask import Mask
from fieldwise.core.schema import Layout, Schema
from fieldwise.core.settings import check_argument
from fieldwise.data.batches import Batches
from fieldwise.data.joined import joined
from fieldwise.data.store import Dataset, Split
from fieldwise.models.dcnv2 import DCNv2
from fieldwise.models.factory import Build, model_class
from fieldwise.models.factory_model import FactoryModel
from fieldwise.models.model import CTRModel, HeadModel, Model
from fieldwise.train.randomness import randomness

Device = Literal["auto", "cpu", "cuda"]


class TrainedModel(Protocol):
    """A model, and how long it was trained."""

    @property
    def model(self) -> CTRModel:
        """The model."""

    @property
    def epochs(self) -> int:
        """Epochs of its training."""

    @property
    def best_epoch(self) -> int:
        """The epoch with the best validation AUC."""


@dataclass(frozen=True, repr=False)
class Task(Shown):
    """Training and validation rows, a base model, a seed, and optionally a starting model. No test rows.

    The starting model is the pretrained full model: searches begin with it, and retraining distills it.
    """

    schema: Schema
    train_rows: Split
    valid_rows: Split
    model: Model = field(default_factory=DCNv2)
    seed: int = 0
    device: Device = "auto"
    start: CTRModel | None = None
    start_epochs: int | None = None
    """Epochs of the training of the starting model, if known."""
    start_best: int | None = None
    """The best of these epochs on validation rows, if known."""

    def __post_init__(self) -> None:
        given: object = self.model
        if not isinstance(given, Model):
            object.__setattr__(self, "model", model_class(given)())

    @classmethod
    def of(cls, data: Dataset, model: Model | Build | None = None, seed: int = 0, device: Device = "auto") -> "Task":
        """A task over a dataset's train and valid splits; a model is settings, or a function build(schema)."""
        check_argument(data, Dataset, "data", "fw.prepare(source, out=...)")
        model = model if model is None or isinstance(model, Model) else model_class(model)()
        return cls(data.schema, data.train, data.valid, model or DCNv2(), seed, device)

    def starting_from(self, start: "CTRModel | TrainedModel") -> "Task":
        """A copy of the task with a starting model: the result of `fw.pretrain(task)`, or a model.

        From the result, retraining knows how many epochs pretraining took, and which was the best (`Decay`).
        """
        model: Any = start if isinstance(start, CTRModel) else getattr(start, "model", start)
        check_trained(model, "fw.pretrain(task)")
        epochs, best = getattr(start, "epochs", None), getattr(start, "best_epoch", None)
        return replace(self, start=model, start_epochs=epochs, start_best=best)

    def view(self) -> View:
        """The rows, the base model and the fields."""
        start = "a starting model" if self.start is not None else "no starting model"
        title = f"Task: {len(self.train_rows):,} train rows, {len(self.valid_rows):,} valid rows, seed {self.seed}"
        layout = self.layout.view()
        return replace(layout, title=title, lines=(f"{self.model!r}, {start}, device {self.device}", layout.title))

    @property
    def counts(self) -> tuple[int, float]:
        """Number of training rows, and of clicks among them."""
        return len(self.train_rows), float(self.train_rows.labels.sum(dtype=np.float64))

    @property
    def click_rate(self) -> float:
        """Fraction of clicks among the training rows, above 0 and below 1 even if all labels are equal."""
        rows, clicks = self.counts
        return (clicks + 0.5) / (rows + 1)

    @cached_property
    def left_out(self) -> frozenset[int]:
        """Indices of the fields without columns in the starting model, where it has all columns of every other field.

        Such a field may have first-order weights; every other field has them, if the model does.
        """
        start = self.start
        if not isinstance(start, HeadModel) or start.schema != self.schema:
            return frozenset()
        full, gone = self.model.layout(self.schema), _empty(start.layout)
        rest = self._first_order_left_out
        same = start.layout == _less(full, gone) and rest <= gone and start.linear == self._linear_without(rest)
        return gone if same else frozenset()

    @property
    def _first_order_left_out(self) -> frozenset[int]:
        """Indices of the fields without first-order weights in the starting model, if it has any."""
        linear = self.start.linear if isinstance(self.start, HeadModel) else None
        return _empty(linear) if linear else frozenset()

    def _linear_without(self, fields: frozenset[int]) -> Layout | None:
        linear = self.model.linear(self.schema)
        return _less(linear, fields) if linear else None

    @property
    def layout(self) -> Layout:
        """The columns of the full model, without those of fields that were left out."""
        return _less(self.model.layout(self.schema), self.left_out)

    @property
    def linear(self) -> Layout | None:
        """The first-order weights of the full model, if it has them."""
        return self._linear_without(self._first_order_left_out & self.left_out)

    def bound(self, budget: Budget) -> Budget:
        """The budget of a task without some fields: percentages are of the model with all, and it is at most its size.

        Without such fields, the budget itself.
        """
        if not self.left_out:
            return budget
        fixed = budget.fixed(self.model.layout(self.schema), self.model.linear(self.schema))
        return fixed.within(self.layout, self.linear)

    def joined(self) -> "Task":
        """The task with one field for each column of the data, in place of its tiers; itself if it has none."""
        schema = self.schema.joined
        if schema is self.schema:
            return self
        train, valid = (
            Split(joined(rows.ids, self.schema), rows.labels) for rows in (self.train_rows, self.valid_rows)
        )
        return replace(self, schema=schema, train_rows=train, valid_rows=valid)

    @cached_property
    def torch_device(self) -> torch.device:
        """The device that the task runs on."""
        return choose_device(self.device)

    @cached_property
    def train(self) -> Batches:
        """Batches of training rows."""
        return Batches(self.train_rows, self.torch_device)

    @cached_property
    def valid(self) -> Batches:
        """Batches of validation rows."""
        return Batches(self.valid_rows, self.torch_device)

    def new_model(self, mask: Mask | None = None) -> CTRModel:
        """A model with new random weights, the same for the same seed; with all columns unless a mask is given."""
        if self.left_out:
            mask = mask or Mask.all(self.layout)
            if self.linear and mask.first_order is None:
                mask = replace(mask, first_order=self.linear.widths)
        with randomness(self.seed, "weights"):
            model = self.model.new(self.schema) if mask is None else self.model.fresh(self.schema, mask)
        model.start_at(self.click_rate)
        model = model.to(self.torch_device)
        if isinstance(model, FactoryModel):
            model.check_device()
        return model

    def starting_model(self) -> CTRModel:
        """A copy of the starting model, or a model with new random weights if there is none."""
        return self.new_model() if self.start is None else deepcopy(self.start).to(self.torch_device)


def _empty(layout: Layout) -> frozenset[int]:
    """Indices of the fields without columns."""
    return frozenset(j for j, width in enumerate(layout.widths) if not width)


def _less(layout: Layout, fields: frozenset[int]) -> Layout:
    """A layout without the columns of some fields."""
    return layout.narrowed(tuple(() if j in fields else tuple(range(width)) for j, width in enumerate(layout.widths)))


def choose_device(name: Device) -> torch.device:
    """The device for a setting; `auto` is CUDA if available."""
    if name not in get_args(Device):
        raise SettingsError(f"device = {name!r}. Choose from: {', '.join(get_args(Device))}.")
    if name == "cuda" and not torch.cuda.is_available():
        raise SettingsError("[run] device = 'cuda', but PyTorch sees no CUDA device here. Choose cpu or auto.")
    return torch.device("cuda" if name == "cuda" or (name == "auto" and torch.cuda.is_available()) else "cpu")


def check_trained(model: object, example: str) -> None:
    """Refuse anything but a model, such as the result that contains it."""
    if not isinstance(model, CTRModel):
        raise SettingsError(f"Got a {type(model).__name__}. Allowed: a model. Pass its model, {example}.")
