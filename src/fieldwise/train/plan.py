"""What a training is given: settings from the user, and a plan from the stage that trains."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Annotated, Protocol, Self

from pydantic import Field
from torch import Tensor, nn

from fieldwise.core.automatic import AUTO, Auto, number_or_auto
from fieldwise.core.errors import SettingsError
from fieldwise.core.records import Epoch, Metrics
from fieldwise.core.settings import Settings
from fieldwise.data.batches import Batch
from fieldwise.tables.optimizer import Method, Optimizer
from fieldwise.tables.state import Tensors
from fieldwise.train.auto import batch_for, patience_for
from fieldwise.train.precision import Precision

_Batch = Annotated[int, Field(ge=2)]
_Patience = Annotated[int, Field(ge=1)]
BatchSize = Annotated[_Batch | Auto, number_or_auto(_Batch)]
"""Rows per step."""
Patience = Annotated[_Patience | Auto, number_or_auto(_Patience)]
"""Epochs without a better validation AUC."""


Condition = Callable[[list[Epoch]], bool]
"""Whether a training stops after these epochs."""


class Training(Settings):
    """Settings of a training."""

    batch: BatchSize = AUTO
    """Rows per step, at least 2; auto: 64 to 2,048, by the number of training rows and clicks."""
    learning_rate: float = Field(1e-3, gt=0)
    """Learning rate of the optimizer, above 0."""
    optimizer: Method = "adam"
    """adam; dense-adam: the same updates, applied to every row at every step; rowwise-adagrad for the tables."""
    precision: Precision = "float32"
    """Precision of matrix products: float32, bfloat16, or tf32, which rounds their inputs to 10 bits on a GPU and is
    float32 elsewhere. Weights and moments are always float32."""
    epochs: int = Field(50, ge=1)
    """Maximum number of passes over the training rows, at least 1."""
    patience: Patience = AUTO
    """Epochs without a better validation AUC before training stops, at least 1; auto: 2 to 10, by the steps of an
    epoch."""

    def fitted(self, rows: int, clicks: float) -> Self:
        """The settings with numbers for `auto`, for this many training rows and clicks."""
        batch = batch_for(rows, clicks) if self.batch == AUTO else self.batch
        patience = patience_for(rows, batch) if self.patience == AUTO else self.patience
        return self.model_copy(update={"batch": batch, "patience": patience})


def check_tables_of_module(stage: str, method: Method) -> None:
    """Refuse an optimizer that updates only tables of the library, for a factory's model."""
    if method == "rowwise-adagrad":
        raise SettingsError(
            f"[{stage}] optimizer = 'rowwise-adagrad' updates tables of the library; a factory's tables are the "
            "module's own. Choose adam or dense-adam."
        )


class Stateful(Protocol):
    """State in addition to the model that a checkpoint must store."""

    def tensors(self) -> Tensors:
        """The state."""

    def restore(self, tensors: Tensors) -> None:
        """Restore a state."""


@dataclass(frozen=True)
class TrainingPlan:
    """Everything that differs between trainings."""

    stage: str
    """Name of the training, in messages and as part of its random seed."""
    forward: Callable[[Tensor], Tensor]
    """Training logits (B,) from ids (B, F)."""
    evaluate: Callable[[], Metrics]
    """Evaluates the model on the validation rows."""
    stop: Condition
    """Whether to stop after these epochs."""
    keep_best: bool
    """Whether to return the weights with the best validation AUC, instead of the last."""
    average: float = 0.0
    """Above 0: whether to return a moving average of weights over epochs, where it has the best validation AUC; it
    gives those before an epoch this weight."""
    before_epoch: Callable[[int], bool] = lambda _: False
    """Called with the number of every epoch before its steps; whether these run other kernels than steps before."""
    before_step: Callable[[], None] | None = None
    """Called before every step on a training batch."""
    valid_step: Callable[[Batch], None] | None = None
    """Called before every step on a training batch, with a batch of validation rows."""
    look: Callable[[], None] = lambda: None
    """Called at intervals between steps; it may synchronize with a GPU."""
    penalty: Callable[[], Tensor] | None = None
    """Added to the loss."""
    every_row: bool = False
    """Whether the penalty has a gradient in every row of every table."""
    after_step: Callable[[Optimizer], None] = lambda _: None
    """Called after every step on a training batch, with the optimizer that updated the weights."""
    same_steps: bool = False
    """Whether all steps run the same kernels on the same tensors, so that a GPU can capture and replay one."""
    beside: Stateful | None = None
    """Further state to store in checkpoints."""
    decays_in: float | None = None
    """Epochs in which the learning rate falls to zero, the last of which may end early; None: the rate is constant."""
    table_rate: float = 1.0
    """Learning rate of tables and first-order weights, in multiples of the others'."""
    slow: Collection[nn.Parameter] = ()
    """Tables or first-order weights whose learning rate `table_rate` does not raise."""
    place: int = 0
    """Index among consecutive trainings of this stage; each has its own random numbers."""


def early_stop(patience: int) -> Condition:
    """A stop criterion: `patience` epochs without a better validation AUC."""

    def stop(history: list[Epoch]) -> bool:
        if not history:
            return False
        aucs = [epoch.auc for epoch in history]
        return len(aucs) - 1 - aucs.index(max(aucs)) >= patience

    return stop
