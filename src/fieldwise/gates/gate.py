"""What every gate can do; the search computes the loss and its gradient with respect to the gate's values."""

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from fieldwise.core.settings import Settings


class Gate(ABC):
    """One learnable number per column, held in double precision: steps are small against the numbers."""

    def __init__(self, start: float, costs: Tensor, limit: int) -> None:
        self.alpha = torch.full((len(costs),), start, dtype=torch.float64, device=costs.device)
        self.costs, self.limit = costs, limit

    @abstractmethod
    def draw(self) -> Tensor:
        """Values for the next training or search forward, (S,) float32; may be random."""

    @abstractmethod
    def step(self, grad: Tensor) -> None:
        """Moves by the gradient of the validation loss with respect to the values last drawn, (S,)."""

    def for_evaluation(self) -> Tensor:
        """Values without randomness, (S,) float32: what `draw` gives, or what a gate that draws takes in its place."""
        return self.draw()

    def settled(self, mask: Tensor) -> Tensor:
        """Values that the search's last evaluation uses, once `mask` has been selected, (S,) float32."""
        return self.for_evaluation()

    def scores(self) -> Tensor:
        """Importance per column, higher is kept, (S,)."""
        return self.alpha

    def live(self) -> Tensor:
        """The columns that the gate lets through at all, (S,) bool."""
        return self.for_evaluation() > 0


class GateSettings(Settings, ABC):
    """Settings of a gate; `build` makes it."""

    @abstractmethod
    def build(self, costs: Tensor, limit: int) -> Gate:
        """A new gate over columns of these costs, for live columns that cost `limit` together."""
