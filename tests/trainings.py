"""Interrupts trainings, and compares them."""

from typing import Any

import torch
from torch import Tensor

from fieldwise.core.records import Epoch
from fieldwise.core.watcher import Watcher
from fieldwise.train.trained import Trained


class Stop(Watcher):
    """Raises after a number of epochs, like a power cut."""

    def __init__(self, after: int) -> None:
        self._after = after

    def epoch(self, stage: str, epoch: Epoch) -> None:
        if epoch.epoch == self._after:
            raise KeyboardInterrupt


def numbers(trained: Trained[Any]) -> list[tuple[float | None, float, float]]:
    """The figures of every epoch."""
    return [(e.loss, e.auc, e.log_loss) for e in trained.history]


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    """Whether two states have the same names and bits."""
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)
