"""Settings of searches that train: declared once, and handed to the training loop as `Training`."""

from abc import ABC
from typing import Literal, Self

from pydantic import Field

from fieldwise.core.automatic import AUTO
from fieldwise.models.model import CTRModel
from fieldwise.searches.search import Search
from fieldwise.tables.optimizer import Method
from fieldwise.train.plan import BatchSize, Training
from fieldwise.train.precision import Precision
from fieldwise.train.task import Task


class AdamSearch(Search, ABC):
    """A search that trains with Adam in float32."""

    epochs: int = Field(10, ge=1)
    """Passes over the training rows, at least 1."""
    batch: BatchSize = AUTO
    """Rows per step, at least 2; auto: as in pretraining."""
    learning_rate: float = Field(1e-3, gt=0)
    """Learning rate of the weights, above 0."""

    def fitted(self, rows: int, clicks: float) -> Self:
        """The settings with a number for `auto`."""
        return self.model_copy(update={"batch": self.training().fitted(rows, clicks).batch})

    def training(self) -> Training:
        """The settings that the training loop reads."""
        return Training(batch=self.batch, learning_rate=self.learning_rate, epochs=self.epochs)


class TrainedSearch(AdamSearch, ABC):
    """A search that trains as pretraining does, with a choice of optimizer and precision."""

    optimizer: Method = "adam"
    """As in pretraining: adam, dense-adam or rowwise-adagrad."""
    precision: Precision = "float32"
    """As in pretraining: float32, tf32 or bfloat16."""
    start: Literal["pretrained", "searched"] = "pretrained"
    """Weights of the kept columns that retraining starts from: pretrained: the full model's; searched, as in the
    paper: those that the search trained, which fit the validation rows better than others."""

    def start_of(self, task: Task) -> CTRModel | None:
        """The full model that retraining starts from, if it is not the searched one."""
        return task.start if self.start == "pretrained" else None

    def training(self) -> Training:
        """The settings that the training loop reads."""
        return super().training().model_copy(update={"optimizer": self.optimizer, "precision": self.precision})
