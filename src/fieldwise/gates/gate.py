"""The interface of all gates. The search computes the loss and its gradient with respect to the gate's values."""

from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from torch import Tensor

from fieldwise.core.settings import Settings


class Gate(ABC):
    """One learnable number per column, in float64 because a step is small compared with the number."""

    def __init__(self, start: float, costs: Tensor, limit: int) -> None:
        self.alpha = torch.full((len(costs),), start, dtype=torch.float64, device=costs.device)
        self.costs, self.limit = costs, limit

    @abstractmethod
    def draw(self) -> Tensor:
        """Values for the next training or search forward pass, (S,) float32; may be random."""

    @abstractmethod
    def step(self, grad: Tensor) -> None:
        """Update from the gradient of the validation loss with respect to the values last drawn, (S,)."""

    def for_evaluation(self) -> Tensor:
        """Values without randomness, (S,) float32; by default those of `draw`."""
        return self.draw()

    def settled(self, mask: Tensor) -> Tensor:
        """Values for the search's last evaluation, after `mask` has been selected, (S,) float32."""
        return self.for_evaluation()

    def scores(self) -> Tensor:
        """Importance per column, higher is kept, (S,)."""
        return self.alpha

    def live(self) -> Tensor:
        """Columns whose value is above 0, (S,) bool."""
        return self.for_evaluation() > 0


class GateSettings(Settings, ABC):
    """Settings of a gate; `build` creates the gate."""

    hard: ClassVar[bool] = False
    """Whether values are 0 or 1 without randomness. The live columns then have a definite cost, and the search can stop
    early."""

    @abstractmethod
    def build(self, costs: Tensor, limit: int) -> Gate:
        """A new gate over columns with these costs, for live columns with a total cost of `limit`."""
