"""SAM with Gumbel-sigmoid noise (Louizos et al. 2018), as the paper's baseline SAM-GS."""

from typing import Final

import torch
from pydantic import Field
from torch import Tensor

from fieldwise.gates.gate import Gate, GateSettings

EDGE: Final = 1e-6
"""Keeps alpha and the noise off 0 and 1, where the logit has no value."""


class SamGS(GateSettings):
    """sigmoid((logit(alpha) + logit(u)) / temperature), u uniform; gradient steps on alpha in (0, 1)."""

    start: float = Field(0.5, gt=0, lt=1)
    """Where every alpha starts; the paper does not say."""
    eta: float = Field(1e-2, ge=0)
    """Step on the gradient."""
    temperature: float = Field(1.0, gt=0)
    """The paper tries 1, 0.1 and 0.01."""

    def build(self, costs: Tensor, limit: int) -> Gate:
        """A new gate over columns of these costs."""
        return SamGSGate(self, costs, limit)


class SamGSGate(Gate):
    """Noisy values, drawn anew for every forward."""

    def __init__(self, settings: SamGS, costs: Tensor, limit: int) -> None:
        super().__init__(settings.start, costs, limit)
        self._eta, self._temperature = settings.eta, settings.temperature
        self._drawn = self.alpha

    def draw(self) -> Tensor:
        """Values under fresh noise."""
        noise = torch.rand(len(self.alpha), dtype=torch.float64, device=self.alpha.device).clamp(EDGE, 1 - EDGE)
        self._drawn = torch.sigmoid((torch.logit(self.alpha) + torch.logit(noise)) / self._temperature)
        return self._drawn.float()

    def for_evaluation(self) -> Tensor:
        """The median of the values: those under the median noise, u = 1/2. Their mean has no closed form."""
        return torch.sigmoid(torch.logit(self.alpha) / self._temperature).float()

    def step(self, grad: Tensor) -> None:
        """A gradient step through the noise last drawn, clipped into (0, 1)."""
        inner = self._drawn * (1 - self._drawn) / self._temperature  # by the sigmoid's argument
        slope = inner / (self.alpha * (1 - self.alpha))
        self.alpha.copy_((self.alpha - self._eta * grad.double() * slope).clamp(EDGE, 1 - EDGE))
