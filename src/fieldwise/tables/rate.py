"""Learning rates that follow from the step."""

from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

WARM: Final = 0.05
"""Fraction of the steps in which a rate that decays first rises."""


@dataclass(frozen=True, slots=True)
class Rate:
    """A learning rate: constant, or over `steps` steps rising for a twentieth of them and then falling to zero."""

    top: float
    steps: int | None = None
    """Number of steps of the training; None: the rate is constant."""

    def at(self, step: int) -> float:
        """The rate of a step, from 0."""
        if self.steps is None:
            return self.top
        return self.top * min(1.0, (step + 1) / (WARM * self.steps + 1)) * max(0.0, (self.steps - step) / self.steps)

    def of(self, steps: Tensor) -> Tensor:
        """The rates of several steps, from 0."""
        if self.steps is None:
            return torch.full_like(steps, self.top)
        rising = (steps + 1) / (WARM * self.steps + 1)
        falling = ((self.steps - steps) / self.steps).clamp(min=0)
        return self.top * rising.clamp(max=1) * falling

    def times(self, factor: float) -> "Rate":
        """The same course, this many times as high."""
        return Rate(self.top * factor, self.steps)
