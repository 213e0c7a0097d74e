"""fieldwise: one `pretrain` for all turns, paused by its watcher between turns."""

import os
import threading
import traceback
from typing import Final

import fieldwise as fw
from fieldwise.core.records import Epoch
from fieldwise.core.registry import resolve
from fieldwise.core.watcher import Watcher
from fieldwise.data.store import Split
from fieldwise.models import MODELS
from fieldwise.tables.optimizer import Method
from fieldwise.train.pretraining import Pretrain
from fieldwise.train.regularity import SoftOrthogonality
from rivals.job import LEARNING_RATE, WIDTH, Contender, Job, trained

PACKAGES: Final = ("fieldwise",)
NOTES: Final = (
    "a 16 x 16 lift per field in FM, DeepFM and AutoInt; shuffles and gathers every batch, even if only steps are timed"
)
_VALID_ROWS: Final = 256
"""Validation cannot be disabled, so it is small."""
_ALWAYS: Final = 10**6


def prepare(job: Job, optimizer: Method = "adam") -> Contender:
    """Builds a task from arrays and trains it in a second thread."""
    ids, labels = job.rows()
    schema = fw.Schema.of(**dict(zip(job.names, job.cardinalities, strict=True)))
    valid = Split(ids[:_VALID_ROWS], labels[:_VALID_ROWS])
    settings = resolve("model", MODELS, job.model)(width=WIDTH)
    task = fw.Task(schema, Split(ids, labels), valid, settings, device="cpu")
    turns = Turns(job.ready)
    training = Pretrain(
        batch=job.batch,
        learning_rate=LEARNING_RATE,
        optimizer=optimizer,
        epochs=_ALWAYS,
        patience=_ALWAYS,
        regularity=SoftOrthogonality(strength=0),
    )

    numbers: list[int] = []

    def train() -> None:
        # all of the library runs in this thread: if two threads had used OpenMP, its threads would outnumber the cores,
        # and it would put them to sleep after every operation
        try:
            numbers.append(trained(task.new_model()))
            fw.pretrain(task, training, watcher=turns)
        finally:
            traceback.print_exc()
            os._exit(1)  # training never ends by itself; otherwise the main thread would wait for a dead thread

    threading.Thread(target=train, daemon=True).start()
    turns.loss()  # waits for the evaluation before the first epoch
    return Contender(turns.run, turns.loss, numbers[0])


class Turns(Watcher):
    """Runs one epoch at a time: a turn ends with the last step, or with the epoch if epochs are timed."""

    def __init__(self, only_steps: bool) -> None:
        self._only_steps = only_steps
        self._go, self._stepped, self._rested = (threading.Semaphore(0) for _ in range(3))
        self._loss = float("nan")

    def run(self) -> None:
        """Runs one turn."""
        self._go.release()
        self._stepped.acquire()

    def loss(self) -> float:
        """Waits for the end of the epoch, and returns the mean loss of the last turn."""
        self._rested.acquire()
        return self._loss

    def step(self, stage: str, epoch: int, step: int, steps: int) -> None:
        """Ends the turn after the last step, if only steps are timed."""
        if self._only_steps and step == steps:
            self._stepped.release()

    def epoch(self, stage: str, epoch: Epoch) -> None:
        """Ends the turn after the epoch, and waits for the next turn."""
        self._loss = float("nan") if epoch.loss is None else epoch.loss
        if epoch.epoch and not self._only_steps:
            self._stepped.release()
        self._rested.release()
        self._go.acquire()
