"""HAM, the hard auxiliary mask of the paper (Xiao et al.): indicators moved by straight-through gradients and a wind.

Ours: with a budget in parameters or bytes the wind compares the live columns' cost with the limit, instead of their
number; the search ends with exactly the best columns that fit.
"""

import torch
from pydantic import Field
from torch import Tensor

from fieldwise.gates.gate import Gate, GateSettings


class HAM(GateSettings):
    """alpha <- alpha - eta * gradient - mu * sign(live cost - limit); a column is live while alpha > 0."""

    epsilon: float = Field(0.01, gt=0)
    """Where every alpha starts."""
    eta: float = Field(1e-3, ge=0)
    """Step on the gradient."""
    mu: float = Field(5e-5, gt=0)
    """Step of the wind, outside of eta: epsilon / mu steps lead to zero."""

    def build(self, costs: Tensor, limit: int) -> Gate:
        """A new gate over columns of these costs."""
        return HamGate(self, costs, limit)


class HamGate(Gate):
    """The indicators 1[alpha > 0]."""

    def __init__(self, settings: HAM, costs: Tensor, limit: int) -> None:
        super().__init__(settings.epsilon, costs, limit)
        self._eta, self._mu = settings.eta, settings.mu

    def draw(self) -> Tensor:
        """Ones where alpha is above zero."""
        return (self.alpha > 0).float()

    def step(self, grad: Tensor) -> None:
        """The straight-through step, the same for live and masked columns."""
        wind = torch.sign((self.costs * (self.alpha > 0)).sum() - self.limit).double()
        self.alpha.copy_(self.alpha - self._eta * grad.double() - self._mu * wind)

    def settled(self, mask: Tensor) -> Tensor:
        """The selected mask itself: what HAM evaluates is what it selects."""
        return mask
