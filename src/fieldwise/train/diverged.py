"""Detection of diverged trainings, with a one-line error.

Three things are checked: the loss of every step, every tensor of a checkpoint, and the validation metrics after every
epoch. Diverged state is never written, so the last checkpoint is from before the divergence.
"""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch
from torch import Tensor

from fieldwise.core.errors import TrainingError
from fieldwise.core.records import Epoch
from fieldwise.tables.state import Tensors
from fieldwise.train import checkpoint

WORST: Final = 104.0
"""Maximum log loss. A click with the smallest positive float32 probability, 1e-45, costs 103.3, so no float32
probabilities reach it; early epochs of a healthy training are far below."""


@dataclass(frozen=True)
class Diverged:
    """Raises a TrainingError that names its training."""

    stage: str
    learning_rate: float
    folder: Path | None

    def check_losses(self, losses: Tensor, epoch: int, before: int) -> None:
        """Raise if a loss of the epoch so far is not finite, after so many steps in earlier epochs."""
        wrong = (~torch.isfinite(losses)).nonzero()
        if len(wrong):
            step = int(wrong[0])
            at = f"step {before + step + 1} (epoch {epoch})"
            raise self._error(f"The loss of {self.stage} became {float(losses[step])} at {at}. It must be finite.")

    def check_tensors(self, tensors: Tensors, epoch: int) -> None:
        """Raise if weights, moments or a gate are not finite."""
        by_device: dict[torch.device, dict[str, Tensor]] = {}
        for name, tensor in tensors.items():
            if tensor.is_floating_point() and tensor.numel():
                by_device.setdefault(tensor.device, {})[name] = torch.stack(torch.aminmax(tensor)).double()
        for ends in by_device.values():  # one transfer from a GPU
            for name, (low, high) in zip(ends, torch.stack(list(ends.values())).tolist(), strict=True):
                if not math.isfinite(low) or not math.isfinite(high):
                    when = f"after epoch {epoch}" if epoch else "before the first epoch"
                    got = next(end for end in (low, high) if not math.isfinite(end))
                    raise self._error(f"'{name}' of {self.stage} holds {got} {when}. All numbers must be finite.")

    def check_epochs(self, history: list[Epoch]) -> None:
        """Raise if the log loss is above `WORST` and worse than before training."""
        first, last = history[0], history[-1]
        if last.loss is not None and not math.isfinite(last.loss):
            raise self._error(f"The mean loss of {self.stage} is {last.loss} in epoch {last.epoch}. It must be finite.")
        if last.log_loss > max(WORST, first.log_loss):
            raise self._error(
                f"{self.stage} has diverged: its log loss on validation rows is {last.log_loss:.3g} after epoch "
                f"{last.epoch}. At most {WORST:g} is allowed, the worst that probabilities can have."
            )

    def predicting(self, error: TrainingError, epoch: int) -> TrainingError:
        """The error of an evaluation, with the stage and epoch."""
        return self._error(f"{self.stage}, epoch {epoch}: {error}")

    def _error(self, what: str) -> TrainingError:
        kept = self.folder is not None and (self.folder / checkpoint.INFO).exists()
        return TrainingError(
            f"{what} {'The last good checkpoint is kept. ' if kept else ''}To fix it, lower the learning rate (now "
            f"{self.learning_rate:g}) or the regularity's strength, and run again in a new folder."
        )
