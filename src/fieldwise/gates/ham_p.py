"""HAM-p, the stochastic hard mask (Srinivas et al. 2017; Zhou et al. 2021), a baseline of the paper."""

import torch
from pydantic import Field
from torch import Tensor

from fieldwise.gates.gate import Gate, GateSettings


class HamPGate(GateSettings):
    """Hard random mask: Bernoulli(p) samples, with straight-through gradient steps on p, clipped to [0, 1]."""

    start: float = Field(0.5, gt=0, le=1)
    """Initial p of every column, in (0, 1]. Our choice; the paper does not give it."""
    eta: float = Field(1e-2, ge=0)
    """Step size on the gradient, at least 0."""

    def build(self, costs: Tensor, limit: int) -> Gate:
        """A new gate over columns with these costs."""
        return BernoulliGate(self, costs, limit)


class BernoulliGate(Gate):
    """Samples of 0 or 1 with the probabilities alpha."""

    def __init__(self, settings: HamPGate, costs: Tensor, limit: int) -> None:
        super().__init__(settings.start, costs, limit)
        self._eta = settings.eta

    def draw(self) -> Tensor:
        """Zeros and ones, sampled again for every forward pass."""
        noise = torch.rand(len(self.alpha), dtype=torch.float64, device=self.alpha.device)
        return (noise < self.alpha).float()

    def for_evaluation(self) -> Tensor:
        """The probabilities, which are the mean of the samples."""
        return self.alpha.float()

    def step(self, grad: Tensor) -> None:
        """A straight-through step on the probabilities."""
        self.alpha.copy_((self.alpha - self._eta * grad.double()).clamp(0, 1))
