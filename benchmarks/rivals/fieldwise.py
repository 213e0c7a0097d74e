"""fieldwise: one `pretrain` from the first turn to the last, held back by its watcher between turns."""

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
from fieldwise.train.regularity import SoftOrthogonality
from fieldwise.train.stages import Pretrain
from rivals.job import LEARNING_RATE, WIDTH, Contender, Job, trained

PACKAGES: Final = ("fieldwise",)
NOTES: Final = (
    "a 16 x 16 lift per field in FM, DeepFM and AutoInt; shuffles and gathers every batch, also in steps alone"
)
_VALID_ROWS: Final = 256
"""Validation cannot be left out, so it is small."""
_ALWAYS: Final = 10**6


def prepare(job: Job, optimizer: Method = "adam") -> Contender:
    """A task straight from arrays, trained in a thread of its own."""
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
        # the whole library in this thread: with a second one that has worked too, OpenMP's threads would outnumber the
        # cores, and it would put them to sleep after every operation
        try:
            numbers.append(trained(task.new_model()))
            fw.pretrain(task, training, watcher=turns)
        finally:
            traceback.print_exc()
            os._exit(1)  # it never ends by itself, and nobody must wait for a thread that is dead

    threading.Thread(target=train, daemon=True).start()
    turns.loss()  # the model as it came has been evaluated
    return Contender(turns.run, turns.loss, numbers[0])


class Turns(Watcher):
    """Lets one epoch pass at a time: a turn ends with the last step, or with the epoch where the epoch is timed."""

    def __init__(self, steps_alone: bool) -> None:
        self._steps_alone = steps_alone
        self._go, self._stepped, self._rested = (threading.Semaphore(0) for _ in range(3))
        self._loss = float("nan")

    def run(self) -> None:
        """One turn."""
        self._go.release()
        self._stepped.acquire()

    def loss(self) -> float:
        """The mean loss of the last turn, once its epoch is over."""
        self._rested.acquire()
        return self._loss

    def step(self, stage: str, epoch: int, step: int, steps: int) -> None:
        """Hears of every step."""
        if self._steps_alone and step == steps:
            self._stepped.release()

    def epoch(self, stage: str, epoch: Epoch) -> None:
        """Hears of every epoch, and waits for the next turn."""
        self._loss = float("nan") if epoch.loss is None else epoch.loss
        if epoch.epoch and not self._steps_alone:
            self._stepped.release()
        self._rested.release()
        self._go.acquire()
