"""Interrupts trainings, and compares them."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from fieldwise.core.records import Epoch
from fieldwise.core.watcher import Watcher
from fieldwise.models.model import CTRModel
from fieldwise.train.retraining import Retrain, retrain
from fieldwise.train.task import Task
from fieldwise.train.trained import Trained


class Stop(Watcher):
    """Raises after a number of epochs, like a power cut."""

    def __init__(self, after: int) -> None:
        self._after = after

    def epoch(self, stage: str, epoch: Epoch) -> None:
        if epoch.epoch == self._after:
            raise KeyboardInterrupt


def numbers(trained: Trained[Any]) -> list[tuple[float | None, ...]]:
    """The figures of every epoch."""
    return [(e.loss, e.auc, e.averaged_auc, e.log_loss) for e in trained.history]


def interrupted(task: Task, model: CTRModel, settings: Retrain, folder: Path, stop: Watcher) -> Trained[Any]:
    """Retrains at once and with an interruption, which must end with the same bits."""
    whole = retrain(task, model, settings)
    with pytest.raises(KeyboardInterrupt):
        retrain(task, model, settings, folder / "a", stop)
    again = retrain(task, model, settings, folder / "a")
    assert numbers(again) == numbers(whole)
    assert same(again.model.state_dict(), whole.model.state_dict())
    return whole


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    """Whether two states have the same names and bits."""
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)
