"""The training loop. Pretraining, searching and retraining all use it, with different plans."""

import math
import time
from contextlib import closing, nullcontext
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final

import torch
from torch import Tensor, nn

from fieldwise.core.automatic import chosen
from fieldwise.core.errors import TrainingError
from fieldwise.core.records import Epoch
from fieldwise.core.resident import keep_freed
from fieldwise.core.watcher import Watcher
from fieldwise.data.batches import Batch
from fieldwise.models.factory_model import FactoryModel
from fieldwise.models.model import CTRModel
from fieldwise.processes.batch_norm import norms_over_ranks
from fieldwise.processes.ranks import current
from fieldwise.tables.optimizer import Optimizer
from fieldwise.tables.rate import Rate
from fieldwise.tables.state import Tensors, named, under
from fieldwise.tables.threads import step_threads
from fieldwise.train import checkpoint
from fieldwise.train.ahead import Ahead
from fieldwise.train.average import Average
from fieldwise.train.capture import Captured
from fieldwise.train.checkpoint import weights
from fieldwise.train.decay import steps_of
from fieldwise.train.diverged import Diverged
from fieldwise.train.kept import Checkpoints
from fieldwise.train.loss import part_of_loss, working_on
from fieldwise.train.plan import Training, TrainingPlan, check_tables_of_module
from fieldwise.train.precision import matrix_products
from fieldwise.train.randomness import randomness, seed_of
from fieldwise.train.task import Task

CHECK_EVERY: Final = {"cpu": 100, "cuda": 1000}
"""Steps between checks of the loss and reports of the gate; each synchronizes with the GPU."""


def fit(
    model: nn.Module,
    task: Task,
    settings: Training,
    plan: TrainingPlan,
    folder: Path | None = None,
    watcher: Watcher | None = None,
) -> list[Epoch]:
    """Train the model in place and return its history, which begins with an evaluation before training.

    With a folder, `fit` writes a checkpoint after every epoch and resumes from an existing one. The best weights are
    stored there; without a folder they stay in memory.
    """
    watcher = watcher or Watcher()
    if len(task.train) < 2:
        raise TrainingError(
            f"{plan.stage} got {len(task.train)} training rows. A step needs at least 2. Give more rows."
        )
    if isinstance(model, FactoryModel):
        check_tables_of_module(plan.stage, settings.optimizer)
    keep_freed()
    with norms_over_ranks(model):
        return _fit(model, task, settings, plan, folder, watcher)


def _fit(
    model: nn.Module, task: Task, settings: Training, plan: TrainingPlan, folder: Path | None, watcher: Watcher
) -> list[Epoch]:
    """Train from the last checkpoint until the plan's end."""
    ranks, diverged = current(), Diverged(plan.stage, settings.learning_rate, folder)
    with closing(_Work(model, task, settings, plan, watcher, diverged)) as work:
        kept = Checkpoints(folder, model, work.optimizer, task.torch_device) if folder else None
        average = Average(plan.average) if plan.average else None
        history = _resume(model, work.optimizer, plan, average, folder, kept)
        best: Tensors = {}
        buffers = _buffers(model)
        while len(history) <= work.epochs and not plan.stop(history):
            started, number = time.perf_counter(), len(history)
            loss = None
            if number:
                with randomness(task.seed, plan.stage, number, plan.place, own=True):
                    loss = work.epoch(number)
            state = _state(model, work.optimizer, plan)
            diverged.check_tensors({name: t for name, t in state.items() if name not in buffers}, number)
            try:
                metrics = plan.evaluate()
                averaged = _averaged(average, model, plan, metrics.auc) if average and number else None
            except TrainingError as error:
                raise diverged.predicting(error, number) from error
            seconds = time.perf_counter() - started
            epoch = Epoch(
                epoch=number, loss=loss, auc=metrics.auc, log_loss=metrics.log_loss, seconds=seconds,
                averaged_auc=averaged,
            )  # fmt: skip
            history.append(ranks.from_first(lambda epoch=epoch: epoch))  # type: ignore[misc]
            diverged.check_epochs(history)
            better = plan.keep_best and _best_place(history) == number
            if kept:
                state |= named("average", average.tensors()) if average else {}
                kept.save(state, {"history": [epoch.to_json() for epoch in history]}, better)
            elif better:
                best = average.tensors() if average and history[-1].is_averaged else weights(model)
            watcher.epoch(plan.stage, history[-1])
        chosen_epoch = history[_best_place(history)]
        if plan.keep_best and (chosen_epoch.is_averaged or chosen_epoch is not history[-1]):
            model.load_state_dict(kept.best("average" if chosen_epoch.is_averaged else "model") if kept else best)
        return history


def _averaged(average: Average, model: nn.Module, plan: TrainingPlan, auc: float) -> float:
    """Add the weights after an epoch, whose validation AUC is given, to the average; that of the average."""
    is_first = not average.tensors()
    average.add(model)
    if is_first:  # the weights themselves
        return auc
    with average.within(model):
        return plan.evaluate().auc


def _best_place(history: list[Epoch]) -> int:
    """Index of the last epoch with the best validation AUC, of its weights or of the average."""
    aucs = [epoch.kept_auc for epoch in history]
    return len(aucs) - 1 - aucs[::-1].index(max(aucs))


class _Work:
    """The steps of a training, epoch by epoch."""

    def __init__(
        self, model: nn.Module, task: Task, settings: Training, plan: TrainingPlan, watcher: Watcher, diverged: Diverged
    ) -> None:
        self._model, self._task, self._settings = model, task, settings
        self._plan, self._watcher, self._diverged = plan, watcher, diverged
        self._epoch_steps = math.ceil(len(task.train) / chosen(settings.batch))
        passes = settings.epochs if plan.decays_in is None else plan.decays_in
        self._steps = steps_of(passes, self._epoch_steps)
        self.epochs = math.ceil(self._steps / self._epoch_steps)
        rate = Rate(settings.learning_rate, self._steps if plan.decays_in is not None else None)
        batch = chosen(settings.batch)
        self._places = (model if isinstance(model, CTRModel) else task).schema.places
        """Ids per row; those of the model, whose tiers the rows may have joined."""
        self.optimizer = Optimizer(model, settings.optimizer, rate, batch, plan.every_row, plan.table_rate, plan.slow)
        on_gpu, single = task.torch_device.type == "cuda", current().size == 1
        self._messages = current().talking if self.optimizer.shards() else nullcontext
        """A context for gradients of rows that other processes hold."""
        self._ahead: Ahead | None = None
        self._captured: Captured | None = None
        self._captures = plan.same_steps and self.optimizer.same_shapes and on_gpu and single
        if self._captures:
            self._captured = self._new_capture()
        if on_gpu and single:
            seed = partial(seed_of, task.seed, plan.stage, place=plan.place)
            self._ahead = Ahead(len(task.train), seed, *self._orders_of_valid())

    def _new_capture(self) -> Captured:
        return Captured(lambda *parts: self._plain_step(*map(Batch, parts[::2], parts[1::2])))

    def _orders_of_valid(self) -> tuple[int, int]:
        """Validation rows, and how often an epoch shuffles them; 0 if steps may draw other numbers in between."""
        if not (self._captured and self._plan.valid_step):
            return 0, 0
        rows = len(self._task.valid)
        return rows, math.ceil(self._epoch_steps / math.ceil(rows / chosen(self._settings.batch)))

    def close(self) -> None:
        """Release the captured step, which refers to this object: a cycle would keep GPU memory until it is found."""
        self._captured = None

    def epoch(self, number: int) -> float:
        """Train for one pass over the training rows, or less in the last one; returns the mean loss without penalty."""
        task, plan, size = self._task, self._plan, chosen(self._settings.batch)
        self._model.train()
        if plan.before_epoch(number) and self._captures:
            self._captured = self._new_capture()
        before = (number - 1) * self._epoch_steps
        steps = min(self._epoch_steps, self._steps - before)
        losses = torch.zeros(steps, device=task.torch_device)
        check, done = CHECK_EVERY[task.torch_device.type], 0
        with step_threads(self._model, size * self._places), self.optimizer.reading():
            order, of_valid = self._ahead.orders(number) if self._ahead else (None, None)
            valid = task.valid.endless(size, of_valid)
            for step, batch in enumerate(islice(task.train.shuffled(size, order), steps)):
                if batch.rows < 2:
                    continue  # batch normalization needs two rows
                if step % check == 0:
                    plan.look()
                batches = [batch, next(valid)] if plan.valid_step else [batch]
                self.optimizer.at(before + step)
                loss, parts = self._step(*batches), current().size if batch.is_whole else 1
                losses[step] = loss if parts == 1 else loss / parts
                done = step + 1
                plan.after_step(self.optimizer)
                if (step + 1) % check == 0:
                    self._diverged.check_losses(current().total(losses[:done]), number, before)
                self._watcher.step(plan.stage, number, step + 1, steps)
        losses = current().total(losses[:done])
        self._diverged.check_losses(losses, number, before)
        return float(losses.mean())

    def _step(self, *batches: Batch) -> Tensor:
        if self._captured:
            return self._captured(*(part for batch in batches for part in (batch.ids, batch.labels)))
        return self._plain_step(*batches)

    def _plain_step(self, batch: Batch, valid: Batch | None = None) -> Tensor:
        """One step on a training batch, after the plan's step on a validation batch if it has one.

        Returns this process's part of the loss.
        """
        with matrix_products(self._settings.precision):
            return self._mixed_step(batch, valid)

    def _mixed_step(self, batch: Batch, valid: Batch | None) -> Tensor:
        plan, device = self._plan, self._task.torch_device.type
        mixed = torch.autocast(device, torch.bfloat16, enabled=self._settings.precision == "bfloat16")
        if plan.valid_step:
            assert valid is not None
            self.optimizer.prepare(batch.ids)
            with mixed, working_on(valid):
                plan.valid_step(valid)
        if plan.before_step:
            plan.before_step()
        with working_on(batch):
            with mixed:
                logits = plan.forward(batch.ids)
            loss = part_of_loss(logits, batch)
            self.optimizer.forget()
            whole = loss if plan.penalty is None else loss + plan.penalty() / current().size
            with self._messages():
                whole.backward()
            self.optimizer.step()
        return loss.detach()


def _state(model: nn.Module, optimizer: Optimizer, plan: TrainingPlan) -> Tensors:
    """Everything that a checkpoint stores."""
    tensors = named("model", model.state_dict()) | named("optimizer", optimizer.tensors())
    return tensors | named("beside", plan.beside.tensors()) if plan.beside else tensors


def _buffers(model: nn.Module) -> set[str]:
    """Names of a model's buffers, which may hold infinities, for example in a user's attention mask."""
    return set(named("model", dict(model.named_buffers())))


def _resume(
    model: nn.Module,
    optimizer: Optimizer,
    plan: TrainingPlan,
    average: Average | None,
    folder: Path | None,
    kept: Checkpoints | None,
) -> list[Epoch]:
    found = kept.load() if kept else None
    if found is None:
        return []
    tensors, info = found
    assert folder is not None
    with checkpoint.damage(folder):
        model.load_state_dict(under("model", tensors))
        optimizer.restore(under("optimizer", tensors))
        if plan.beside:
            plan.beside.restore(under("beside", tensors))
        if average:
            average.restore(under("average", tensors))
        history = [Epoch.model_validate(epoch) for epoch in info["history"]]
        if [epoch.epoch for epoch in history] != list(range(info["number"])):
            raise ValueError(f"its history has {len(history)} epochs, {info['number']} are complete")
        return history
