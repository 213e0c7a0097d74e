"""Searches that a user's training loop steps, one validation batch at a time."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fieldwise.core.budget import Budget
from fieldwise.core.errors import SettingsError, TrainingError
from fieldwise.core.mask import Mask
from fieldwise.core.select import select
from fieldwise.pruning.gating import Gating
from fieldwise.pruning.sites import Tables
from fieldwise.searches.gated import Gated
from fieldwise.searches.magnitude import Magnitude

Values = tuple[Tensor | None, Tensor | None]
"""Values that multiply columns in training mode and in evaluation mode; None disables the gate."""


@dataclass(frozen=True)
class Loss:
    """Computes the user's loss on a validation batch."""

    compute: Callable[[], Tensor]
    scale: float = 1.0

    def gradients(self, by: Callable[[], list[Tensor]]) -> tuple[Tensor, list[Tensor | None]]:
        """Return the loss and its gradients by the tensors that `by` returns after the loss is computed."""
        with torch.enable_grad():
            loss = self.compute()
            if not isinstance(loss, Tensor) or loss.numel() != 1 or not loss.is_floating_point():
                got = f"shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else type(loss).__name__
                raise SettingsError(f"loss_fn returned {got}. Allowed: a scalar loss, the mean over rows. Reduce it.")
            tensors = by()
            if not loss.requires_grad or not tensors:
                raise SettingsError(NO_GRADIENT)
            grads = torch.autograd.grad(loss.sum() * self.scale, tensors, allow_unused=True)
        if all(grad is None for grad in grads):
            raise SettingsError(NO_GRADIENT)
        if not all(bool(grad.isfinite().all()) for grad in grads if grad is not None) or not loss.isfinite().all():
            raise TrainingError(
                f"The validation loss {float(loss.detach()):.4g} or its gradient is not finite. The gate is "
                "unchanged: lower the learning rate or the scale."
            )
        return loss.detach(), [None if grad is None else grad / self.scale for grad in grads]


NO_GRADIENT: Final = (
    "The loss does not depend on the model's tables. In loss_fn, run the model that the pruner wraps, without "
    "torch.no_grad(), and return the loss."
)


class Method(ABC):
    """A search over tables, driven one validation batch at a time."""

    learns: ClassVar[bool] = False
    """Whether its mask means nothing before the first step."""

    def __init__(self, tables: Tables, budget: Budget) -> None:
        self.tables, self.layout, self.budget = tables, tables.layout, budget

    @abstractmethod
    def mask(self) -> Mask:
        """Return the columns to keep if the search ends now."""

    def step(self, gating: Gating, loss: Loss) -> Tensor:
        """Learn from one validation batch."""
        with torch.no_grad():
            return loss.compute().detach()

    def values(self) -> Values:
        """Return the values that multiply columns until the next step; they may be random."""
        return None, None

    def still(self) -> Values:
        """Return the values that `values` returned last."""
        return self.values()

    def tensors(self) -> dict[str, Tensor]:
        """Return the state to store."""
        return {}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Restore a stored state."""
        assert not tensors


class ByGate(Method):
    """A gate search: each step updates the gate by the gate's own rule."""

    learns = True

    def __init__(self, tables: Tables, budget: Budget, search: Gated, device: torch.device) -> None:
        super().__init__(tables, budget)
        costs = torch.from_numpy(budget.costs(self.layout)).to(device)
        self.gate = search.gate.build(costs, budget.limit(self.layout))
        self._drawn = self.gate.draw()

    def step(self, gating: Gating, loss: Loss) -> Tensor:
        """Take one step of the gate; weights get no gradients."""
        values = self.gate.draw().requires_grad_()
        with gating.changed(gating.by(values)):
            value, (grad,) = loss.gradients(lambda: [values])
        assert grad is not None
        self.gate.step(grad)
        return value

    def values(self) -> Values:
        """Return a new random draw and the mean."""
        self._drawn = self.gate.draw()
        return self.still()

    def still(self) -> Values:
        """Return the last draw and the mean."""
        return self._drawn, self.gate.for_evaluation()

    def mask(self) -> Mask:
        """Return the columns with the best scores within the budget."""
        return select(self.gate.scores().cpu().numpy(), self.layout, self.budget)

    def tensors(self) -> dict[str, Tensor]:
        """Return the state of the gate."""
        return {"alpha": self.gate.alpha, "drawn": self._drawn}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Restore the state of the gate."""
        self.gate.alpha.copy_(tensors["alpha"])
        self._drawn = tensors["drawn"].to(self.gate.alpha.device)


class Fixed(Method):
    """A mask that does not depend on data; the model trains with it from the start."""

    def __init__(self, tables: Tables, budget: Budget, scores: NDArray[np.float64], device: torch.device) -> None:
        super().__init__(tables, budget)
        self._mask = select(scores, self.layout, budget)
        self._vector = torch.from_numpy(self._mask.vector).float().to(device)

    def mask(self) -> Mask:
        """Return the fixed mask."""
        return self._mask

    def values(self) -> Values:
        """Return the mask for training and for evaluation."""
        return self._vector, self._vector

    def tensors(self) -> dict[str, Tensor]:
        """Return the mask."""
        return {"mask": self._vector}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Restore the mask, even if another seed drew it."""
        self._vector = tensors["mask"].to(self._vector.device)
        self._mask = Mask.of(self.layout, tensors["mask"].numpy())


class BySize(Method):
    """Scores columns by the current magnitude of their weights."""

    def __init__(self, tables: Tables, budget: Budget, search: Magnitude) -> None:
        super().__init__(tables, budget)
        budget.limit(self.layout)
        self._form = search.form

    def mask(self) -> Mask:
        """Return the columns of largest magnitude within the budget."""
        squares = [torch.zeros(width, dtype=torch.float64) for width in self.layout.widths]
        seen: set[int] = set()
        for site in self.tables.sites:
            for field, weight in site.tables():
                if weight.data_ptr() not in seen:
                    seen.add(weight.data_ptr())
                    squares[field] += weight.double().square().sum(0).cpu()
        scores = torch.cat(squares)
        if self._form == "rms":
            scores /= torch.from_numpy(self.layout.rows)
        return select(scores.sqrt().numpy(), self.layout, self.budget)


class ByFeeling(Method):
    """SSEDS: scores each column by the mean absolute gradient of its mask over the batches so far."""

    learns = True

    def __init__(self, tables: Tables, budget: Budget, device: torch.device) -> None:
        super().__init__(tables, budget)
        budget.limit(self.layout)
        self._sum = torch.zeros(self.layout.columns, dtype=torch.float64, device=device)
        self._ones = torch.ones(self.layout.columns, device=device)

    def step(self, gating: Gating, loss: Loss) -> Tensor:
        """Add the gradients of one batch."""
        values = self._ones.clone().requires_grad_()
        with gating.changed(gating.by(values)):
            value, (grad,) = loss.gradients(lambda: [values])
        assert grad is not None
        self._sum += grad.abs().double()
        return value

    def mask(self) -> Mask:
        """Return the columns to which the loss is most sensitive."""
        return select(self._sum.cpu().numpy(), self.layout, self.budget)

    def tensors(self) -> dict[str, Tensor]:
        """Return the sums so far."""
        return {"sum": self._sum}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Restore the sums."""
        self._sum.copy_(tensors["sum"])
