"""SAM, the soft auxiliary mask (DNIS by fields, Cheng et al. 2020): the numbers themselves are the mask."""

from pydantic import Field
from torch import Tensor

from fieldwise.gates.gate import Gate, GateSettings


class SAM(GateSettings):
    """alpha in [0, 1] multiplies its column; gradient steps, clipped."""

    start: float = Field(0.5, gt=0, le=1)
    """Where every alpha starts; the paper does not say."""
    eta: float = Field(1e-2, ge=0)
    """Step on the gradient."""

    def build(self, costs: Tensor, limit: int) -> Gate:
        """A new gate over columns of these costs."""
        return SamGate(self, costs, limit)


class SamGate(Gate):
    """The values alpha."""

    def __init__(self, settings: SAM, costs: Tensor, limit: int) -> None:
        super().__init__(settings.start, costs, limit)
        self._eta = settings.eta

    def draw(self) -> Tensor:
        """The values themselves."""
        return self.alpha.float()

    def step(self, grad: Tensor) -> None:
        """A gradient step, clipped to [0, 1]."""
        self.alpha.copy_((self.alpha - self._eta * grad.double()).clamp(0, 1))
