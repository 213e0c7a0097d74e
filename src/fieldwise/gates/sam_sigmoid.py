"""SAM with a sigmoid (Savarese et al. 2019): free numbers, squeezed into (0, 1)."""

import torch
from pydantic import Field
from torch import Tensor

from fieldwise.gates.gate import Gate, GateSettings


class SamSigmoid(GateSettings):
    """sigmoid(alpha) multiplies its column; gradient steps on alpha."""

    start: float = Field(0.5, gt=0, lt=1)
    """Where every value starts; the paper does not say."""
    eta: float = Field(1e-2, ge=0)
    """Step on the gradient."""

    def build(self, costs: Tensor, limit: int) -> Gate:
        """A new gate over columns of these costs."""
        return SamSigmoidGate(self, costs, limit)


class SamSigmoidGate(Gate):
    """The values sigmoid(alpha)."""

    def __init__(self, settings: SamSigmoid, costs: Tensor, limit: int) -> None:
        super().__init__(settings.start, costs, limit)
        self.alpha = torch.logit(self.alpha)
        self._eta = settings.eta

    def draw(self) -> Tensor:
        """The squeezed values."""
        return torch.sigmoid(self.alpha).float()

    def step(self, grad: Tensor) -> None:
        """A gradient step through the sigmoid."""
        value = torch.sigmoid(self.alpha)
        self.alpha.copy_(self.alpha - self._eta * grad.double() * value * (1 - value))
