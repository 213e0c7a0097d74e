"""SAM with Gumbel-sigmoid noise (Louizos et al. 2018), the paper's baseline SAM-GS."""

from typing import Final

import torch
from pydantic import Field
from torch import Tensor

from fieldwise.gates.gate import Gate, GateSettings

EDGE: Final = 1e-6
"""Smallest distance of alpha and the noise from 0 and 1, where the logit is infinite."""


class SamGSGate(GateSettings):
    """Soft mask with Gumbel noise, with gradient steps on alpha in (0, 1).

    mask = sigmoid((logit(alpha) + logit(u)) / temperature), u uniform
    """

    start: float = Field(0.5, gt=0, lt=1)
    """Initial alpha of every column, in (0, 1). Our choice; the paper does not give it."""
    eta: float = Field(1e-2, ge=0)
    """Step size on the gradient, at least 0."""
    temperature: float = Field(1.0, gt=0)
    """Temperature of the sigmoid, above 0. The paper tries 1, 0.1 and 0.01."""

    def build(self, costs: Tensor, limit: int) -> Gate:
        """A new gate over columns with these costs."""
        return GumbelGate(self, costs, limit)


class GumbelGate(Gate):
    """Noisy values, sampled again for every forward pass."""

    def __init__(self, settings: SamGSGate, costs: Tensor, limit: int) -> None:
        super().__init__(settings.start, costs, limit)
        self._eta, self._temperature = settings.eta, settings.temperature
        self._drawn = self.alpha

    def draw(self) -> Tensor:
        """Values with new noise."""
        noise = torch.rand(len(self.alpha), dtype=torch.float64, device=self.alpha.device).clamp(EDGE, 1 - EDGE)
        self._drawn = torch.sigmoid((torch.logit(self.alpha) + torch.logit(noise)) / self._temperature)
        return self._drawn.float()

    def for_evaluation(self) -> Tensor:
        """The median of the values, at the median noise u = 1/2. Their mean has no closed form."""
        return torch.sigmoid(torch.logit(self.alpha) / self._temperature).float()

    def step(self, grad: Tensor) -> None:
        """A gradient step through the noise last drawn, clipped to (0, 1)."""
        inner = self._drawn * (1 - self._drawn) / self._temperature  # derivative by logit(alpha)
        slope = inner / (self.alpha * (1 - self.alpha))
        self.alpha.copy_((self.alpha - self._eta * grad.double() * slope).clamp(EDGE, 1 - EDGE))
