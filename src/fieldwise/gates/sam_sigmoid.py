"""SAM with a sigmoid (Savarese et al. 2019): unbounded numbers, mapped to (0, 1)."""

import torch
from pydantic import Field
from torch import Tensor

from fieldwise.gates.gate import Gate, GateSettings


class SamSigmoidGate(GateSettings):
    """Soft mask through a sigmoid: sigmoid(alpha) multiplies its column, with gradient steps on alpha."""

    start: float = Field(0.5, gt=0, lt=1)
    """Initial sigmoid(alpha) of every column, in (0, 1). Our choice; the paper does not give it."""
    eta: float = Field(1e-2, ge=0)
    """Step size on the gradient, at least 0."""

    def build(self, costs: Tensor, limit: int) -> Gate:
        """A new gate over columns with these costs."""
        return SigmoidGate(self, costs, limit)


class SigmoidGate(Gate):
    """The values sigmoid(alpha)."""

    def __init__(self, settings: SamSigmoidGate, costs: Tensor, limit: int) -> None:
        super().__init__(settings.start, costs, limit)
        self.alpha = torch.logit(self.alpha)
        self._eta = settings.eta

    def draw(self) -> Tensor:
        """The values sigmoid(alpha) in float32."""
        return torch.sigmoid(self.alpha).float()

    def step(self, grad: Tensor) -> None:
        """A gradient step through the sigmoid."""
        value = torch.sigmoid(self.alpha)
        self.alpha.copy_(self.alpha - self._eta * grad.double() * value * (1 - value))
