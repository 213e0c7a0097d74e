"""HAM-p, the stochastic hard mask (Srinivas et al. 2017; Zhou et al. 2021), as the paper's baseline."""

import torch
from pydantic import Field
from torch import Tensor

from fieldwise.gates.gate import Gate, GateSettings


class HamP(GateSettings):
    """Bernoulli(p) multiplies its column; straight-through gradient steps on p, clipped to [0, 1]."""

    start: float = Field(0.5, gt=0, le=1)
    """Where every p starts; the paper does not say."""
    eta: float = Field(1e-2, ge=0)
    """Step on the gradient."""

    def build(self, costs: Tensor, limit: int) -> Gate:
        """A new gate over columns of these costs."""
        return HamPGate(self, costs, limit)


class HamPGate(Gate):
    """Coins with the chances alpha."""

    def __init__(self, settings: HamP, costs: Tensor, limit: int) -> None:
        super().__init__(settings.start, costs, limit)
        self._eta = settings.eta

    def draw(self) -> Tensor:
        """Zeros and ones, drawn anew for every forward."""
        noise = torch.rand(len(self.alpha), dtype=torch.float64, device=self.alpha.device)
        return (noise < self.alpha).float()

    def for_evaluation(self) -> Tensor:
        """The chances, which are the mean of the coins."""
        return self.alpha.float()

    def step(self, grad: Tensor) -> None:
        """A straight-through step on the chances."""
        self.alpha.copy_((self.alpha - self._eta * grad.double()).clamp(0, 1))
