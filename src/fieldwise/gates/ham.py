"""HAM, the hard auxiliary mask of the paper (Xiao et al.).

Indicators 1[alpha > 0], updated by straight-through gradients and a size penalty. Our choices: with a budget in
parameters or bytes, the penalty compares the cost of the live columns with the limit, instead of their number. The
search ends with exactly the best columns that fit.
"""

from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor

from fieldwise.gates.gate import Gate, GateSettings
from fieldwise.kernels.available import has_kernels


class HAMGate(GateSettings):
    """Hard mask: a column is live while its alpha is above 0.

    alpha <- alpha - eta * gradient - mu * sign(live cost - limit)
    """

    hard: ClassVar[bool] = True
    epsilon: float = Field(0.01, gt=0)
    """Initial alpha of every column, above 0."""
    eta: float = Field(1e-3, ge=0)
    """Step size on the gradient, at least 0."""
    mu: float = Field(5e-5, gt=0)
    """Step size of the size penalty (the paper's wind), above 0, not multiplied by eta: epsilon / mu steps to zero."""

    def build(self, costs: Tensor, limit: int) -> Gate:
        """A new gate over columns with these costs."""
        return HardGate(self, costs, limit)


class HardGate(Gate):
    """The indicators 1[alpha > 0]."""

    def __init__(self, settings: HAMGate, costs: Tensor, limit: int) -> None:
        super().__init__(settings.epsilon, costs, limit)
        self._eta, self._mu = settings.eta, settings.mu
        self._sizes = torch.tensor([self._eta, self._mu], dtype=torch.float64, device=costs.device)

    def draw(self) -> Tensor:
        """Ones where alpha is above zero."""
        return (self.alpha > 0).float()

    def step(self, grad: Tensor) -> None:
        """The straight-through step, the same for live and masked columns."""
        if has_kernels(self.alpha.device):
            from fieldwise.kernels.gates import hard_step

            hard_step(self.alpha, grad, self.costs, self._sizes, self.limit)
            return
        penalty = torch.sign((self.costs * (self.alpha > 0)).sum() - self.limit).double()
        self.alpha.copy_(self.alpha - self._eta * grad.double() - self._mu * penalty)

    def live(self) -> Tensor:
        """Columns whose alpha is above 0, (S,) bool."""
        return self.alpha > 0

    def settled(self, mask: Tensor) -> Tensor:
        """The selected mask: HAM evaluates the model that it selects."""
        return mask
