"""The one training loop: pretraining, searching and retraining are this, with other arguments."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, Protocol

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional

from fieldwise.core.errors import TrainingError
from fieldwise.core.records import Epoch, Metrics
from fieldwise.core.settings import Settings
from fieldwise.core.watcher import Watcher
from fieldwise.data.batches import Batch
from fieldwise.tables.optimizer import Method, Optimizer
from fieldwise.tables.state import Tensors, named, under
from fieldwise.tables.threads import step_threads
from fieldwise.train import checkpoint
from fieldwise.train.capture import Captured
from fieldwise.train.checkpoint import weights
from fieldwise.train.diverged import Diverged
from fieldwise.train.memory import keep_freed
from fieldwise.train.randomness import randomness
from fieldwise.train.task import Task

CHECK_EVERY: Final = {"cpu": 100, "cuda": 1000}
"""Steps between looks at the loss and at the gate; each look waits for a GPU."""


Precision = Literal["float32", "bfloat16"]


class Training(Settings):
    """How weights are fitted; the paper's values are the defaults."""

    batch: int = Field(2048, ge=2)
    """Rows per step."""
    learning_rate: float = Field(1e-3, gt=0)
    """Of the optimizer."""
    optimizer: Method = "adam"
    """adam; dense-adam, which does the same by moving every row at every step; or rowwise-adagrad for the tables."""
    precision: Precision = "float32"
    """Of matrix products; weights and their moments are always float32."""
    epochs: int = Field(50, ge=1)
    """At most so many passes over the training rows."""
    patience: int = Field(2, ge=1)
    """Stop after so many epochs without a better validation AUC."""


class Stateful(Protocol):
    """Something beside the model that a checkpoint must keep."""

    def tensors(self) -> Tensors:
        """Its state."""

    def restore(self, tensors: Tensors) -> None:
        """Takes a state back."""


@dataclass(frozen=True)
class TrainingPlan:
    """What differs between trainings."""

    stage: str
    """Names the training, in messages and for its randomness."""
    forward: Callable[[Tensor], Tensor]
    """Training logits (B,) of ids (B, F)."""
    evaluate: Callable[[], Metrics]
    """On the validation rows."""
    stop: Callable[[list[Epoch]], bool]
    """Whether to stop after these epochs."""
    keep_best: bool
    """Whether to end with the weights of the best validation AUC, or with the last."""
    before_step: Callable[[], None] | None = None
    """Called before every step on a training batch."""
    valid_step: Callable[[Batch], None] | None = None
    """Called before every step on a training batch, with a batch of validation rows."""
    look: Callable[[], None] = lambda: None
    """Called now and then between steps; it may wait for a GPU."""
    penalty: Callable[[], Tensor] | None = None
    """Added to the loss."""
    every_row: bool = False
    """Whether the penalty has a gradient in every row of every table."""
    after_step: Callable[[Optimizer], None] = lambda _: None
    """Called after every step on a training batch, with the optimizer that has moved the weights."""
    same_steps: bool = False
    """Whether all steps run the same kernels on the same tensors, so that a GPU can record one and repeat it."""
    beside: Stateful | None = None
    """Kept in checkpoints beside the model."""
    place: int = 0
    """Which of several trainings of this stage, one after the other, it is; each draws randomness of its own."""


def fit(
    model: nn.Module,
    task: Task,
    settings: Training,
    plan: TrainingPlan,
    folder: Path | None = None,
    watcher: Watcher | None = None,
) -> list[Epoch]:
    """Trains the model in place and returns its history, which begins with the model as it came.

    With a folder, a checkpoint is written after every epoch, and a training found there goes on. The best weights are
    then kept there; without a folder they are kept in memory.
    """
    watcher = watcher or Watcher()
    if len(task.train) < 2:
        raise TrainingError(
            f"{plan.stage} got {len(task.train)} training rows. A step needs at least 2. Give more rows."
        )
    keep_freed()
    diverged = Diverged(plan.stage, settings.learning_rate, folder)
    work = _Work(model, task, settings, plan, watcher, diverged)
    history = _resume(model, work.optimizer, plan, folder, task)
    best: Tensors = {}
    while len(history) <= settings.epochs and not plan.stop(history):
        started, number = time.perf_counter(), len(history)
        loss = None
        if number:
            with randomness(task.seed, plan.stage, number, plan.place):
                loss = work.epoch(number)
        state = _state(model, work.optimizer, plan)
        diverged.check_tensors({name: t for name, t in state.items() if name not in _buffers(model)}, number)
        try:
            metrics = plan.evaluate()
        except TrainingError as error:
            raise diverged.predicting(error, number) from error
        seconds = time.perf_counter() - started
        history.append(Epoch(epoch=number, loss=loss, auc=metrics.auc, log_loss=metrics.log_loss, seconds=seconds))
        diverged.check_epochs(history)
        better = plan.keep_best and _best_place(history) == number
        if folder:
            checkpoint.save(folder, state, {"history": [epoch.to_json() for epoch in history]}, better)
        elif better:
            best = weights(model)
        watcher.epoch(plan.stage, history[-1])
    if plan.keep_best and _best_place(history) != len(history) - 1:
        model.load_state_dict(checkpoint.load_best(folder, "model", task.torch_device) if folder else best)
    return history


def _best_place(history: list[Epoch]) -> int:
    """The last of the epochs with the best validation AUC."""
    aucs = [epoch.auc for epoch in history]
    return len(aucs) - 1 - aucs[::-1].index(max(aucs))


class _Work:
    """The steps of a training, epoch after epoch."""

    def __init__(
        self, model: nn.Module, task: Task, settings: Training, plan: TrainingPlan, watcher: Watcher, diverged: Diverged
    ) -> None:
        self._model, self._task, self._settings = model, task, settings
        self._plan, self._watcher, self._diverged = plan, watcher, diverged
        self.optimizer = Optimizer(
            model, settings.optimizer, settings.learning_rate, settings.batch, dense=plan.every_row
        )
        captured = plan.same_steps and self.optimizer.same_shapes and task.torch_device.type == "cuda"
        self._step = Captured(self._plain_step) if captured else self._plain_step

    def epoch(self, number: int) -> float:
        """One pass over the training rows; the mean loss, penalty left out."""
        task, plan, size = self._task, self._plan, self._settings.batch
        self._model.train()
        steps = math.ceil(len(task.train) / size)
        losses = torch.zeros(steps, device=task.torch_device)
        valid = task.valid.endless(size)
        check, done = CHECK_EVERY[task.torch_device.type], 0
        with step_threads(self._model, size * task.schema.places), self.optimizer.reading():
            for step, batch in enumerate(task.train.shuffled(size)):
                if len(batch.labels) < 2:
                    continue  # batch normalization needs two rows
                if step % check == 0:
                    plan.look()
                inputs = [batch.ids, batch.labels]
                if plan.valid_step:
                    other = next(valid)
                    inputs += [other.ids, other.labels]
                losses[step] = self._step(*inputs)
                done = step + 1
                plan.after_step(self.optimizer)
                if (step + 1) % check == 0:
                    self._diverged.check_losses(losses[:done], number, steps)
                self._watcher.step(plan.stage, number, step + 1, steps)
        self._diverged.check_losses(losses[:done], number, steps)
        return float(losses[:done].mean())

    def _plain_step(self, ids: Tensor, labels: Tensor, *valid: Tensor) -> Tensor:
        """One step on a training batch, before it one on a validation batch where the plan has one; the loss."""
        plan, device = self._plan, self._task.torch_device.type
        mixed = torch.autocast(device, torch.bfloat16, enabled=self._settings.precision == "bfloat16")
        if plan.valid_step:
            with mixed:
                plan.valid_step(Batch(*valid))
        if plan.before_step:
            plan.before_step()
        with mixed:
            logits = plan.forward(ids).float()
        loss = functional.binary_cross_entropy_with_logits(logits, labels)
        self.optimizer.forget()
        (loss if plan.penalty is None else loss + plan.penalty()).backward()
        self.optimizer.step()
        return loss.detach()


def _state(model: nn.Module, optimizer: Optimizer, plan: TrainingPlan) -> Tensors:
    """All that a checkpoint keeps."""
    tensors = named("model", model.state_dict()) | named("optimizer", optimizer.tensors())
    return tensors | named("beside", plan.beside.tensors()) if plan.beside else tensors


def _buffers(model: nn.Module) -> set[str]:
    """Names of what a model stores beside its weights; a mask of a user's own may hold infinities there."""
    return set(named("model", dict(model.named_buffers())))


def _resume(model: nn.Module, optimizer: Optimizer, plan: TrainingPlan, folder: Path | None, task: Task) -> list[Epoch]:
    found = checkpoint.load(folder, task.torch_device) if folder else None
    if found is None:
        return []
    tensors, info = found
    assert folder is not None
    with checkpoint.damage(folder):
        model.load_state_dict(under("model", tensors))
        optimizer.restore(under("optimizer", tensors))
        if plan.beside:
            plan.beside.restore(under("beside", tensors))
        return [Epoch.model_validate(epoch) for epoch in info["history"]]


def early_stop(patience: int) -> Callable[[list[Epoch]], bool]:
    """Stops after `patience` epochs without a better validation AUC."""

    def stop(history: list[Epoch]) -> bool:
        if not history:
            return False
        aucs = [epoch.auc for epoch in history]
        return len(aucs) - 1 - aucs.index(max(aucs)) >= patience

    return stop
