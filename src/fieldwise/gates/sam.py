"""SAM, the soft auxiliary mask (DNIS per field, Cheng et al. 2020): the learned numbers are the mask."""

from pydantic import Field
from torch import Tensor

from fieldwise.gates.gate import Gate, GateSettings


class SAMGate(GateSettings):
    """Soft mask: alpha multiplies its column, with gradient steps on alpha, clipped to [0, 1]."""

    start: float = Field(0.5, gt=0, le=1)
    """Initial alpha of every column, in (0, 1]. Our choice; the paper does not give it."""
    eta: float = Field(1e-2, ge=0)
    """Step size on the gradient, at least 0."""

    def build(self, costs: Tensor, limit: int) -> Gate:
        """A new gate over columns with these costs."""
        return SoftGate(self, costs, limit)


class SoftGate(Gate):
    """The values alpha."""

    def __init__(self, settings: SAMGate, costs: Tensor, limit: int) -> None:
        super().__init__(settings.start, costs, limit)
        self._eta = settings.eta

    def draw(self) -> Tensor:
        """The values alpha in float32."""
        return self.alpha.float()

    def step(self, grad: Tensor) -> None:
        """A gradient step, clipped to [0, 1]."""
        self.alpha.copy_((self.alpha - self._eta * grad.double()).clamp(0, 1))
