"""Searches that a user's training loop drives, one validation batch at a time.

The gates move as in our own loop. `sseds` and `rounds` collect what they need from the batches they are shown; the
baselines need none. Searches that train a network of their own cannot be driven so, and say why.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fieldwise.core.budget import Budget
from fieldwise.core.errors import SettingsError, TrainingError
from fieldwise.core.mask import Mask
from fieldwise.core.select import select
from fieldwise.pruning.gating import Gating
from fieldwise.pruning.sites import Site, Tables
from fieldwise.searches.gated import Gated
from fieldwise.searches.magnitude import Magnitude
from fieldwise.searches.mde import MDE
from fieldwise.searches.random import Random
from fieldwise.searches.rounds import Rounds, targets, worth
from fieldwise.searches.search import Search, check_smallest
from fieldwise.searches.sseds import SSEDS
from fieldwise.searches.uniform import Uniform

REFUSED: Final = {
    "AutoDim": "trains a supernet that mixes tables of several widths, in place of your model",
    "OptEmbed": "trains a supernet with random widths and evaluates many masks on all validation rows",
    "PEP": "trains thresholds inside the tables, in place of your optimizer",
    "Race": "retrains and judges several models: make one pruner for each search, and keep the best result",
}
"""Why a search cannot run in a loop that is not ours."""
Values = tuple[Tensor | None, Tensor | None]
"""What multiplies columns in modules that train, and in modules that are evaluated; None for nothing."""


@dataclass(frozen=True)
class Loss:
    """The user's loss on a validation batch."""

    compute: Callable[[], Tensor]
    scale: float = 1.0

    def gradients(self, by: Callable[[], list[Tensor]]) -> tuple[Tensor, list[Tensor | None]]:
        """The loss, and its gradients by what `by` names after the loss was computed."""
        with torch.enable_grad():
            loss = self.compute()
            if not isinstance(loss, Tensor) or loss.numel() != 1 or not loss.is_floating_point():
                got = f"shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else type(loss).__name__
                raise SettingsError(f"loss_fn gave {got}. Allowed: a scalar loss, the mean over rows. Reduce it.")
            tensors = by()
            if not loss.requires_grad or not tensors:
                raise SettingsError(NO_GRADIENT)
            grads = torch.autograd.grad(loss.sum() * self.scale, tensors, allow_unused=True)
        if all(grad is None for grad in grads):
            raise SettingsError(NO_GRADIENT)
        if not all(bool(grad.isfinite().all()) for grad in grads if grad is not None) or not loss.isfinite().all():
            raise TrainingError(
                f"The validation loss {float(loss.detach()):.4g} or its gradient is not finite. The gate stays where "
                "it was: lower the learning rate, or the scale."
            )
        return loss.detach(), [None if grad is None else grad / self.scale for grad in grads]


NO_GRADIENT: Final = (
    "The loss does not depend on the model's tables. Let loss_fn run the model that the pruner was made for, without "
    "torch.no_grad(), and return the loss."
)


class Method(ABC):
    """A search over tables."""

    def __init__(self, tables: Tables, budget: Budget) -> None:
        self.tables, self.layout, self.budget = tables, tables.layout, budget

    @abstractmethod
    def mask(self) -> Mask:
        """The columns that are kept if the search ends now."""

    def step(self, gating: Gating, loss: Loss) -> Tensor:
        """Learns from one validation batch."""
        with torch.no_grad():
            return loss.compute().detach()

    def values(self) -> Values:
        """What multiplies columns until the next step; may be random."""
        return None, None

    def still(self) -> Values:
        """The same as `values` gave last."""
        return self.values()

    def tensors(self) -> dict[str, Tensor]:
        """What a stored state holds."""
        return {}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Takes a stored state back."""
        assert not tensors


class ByGate(Method):
    """A gate moves by its own rule."""

    def __init__(self, tables: Tables, budget: Budget, search: Gated, device: torch.device) -> None:
        super().__init__(tables, budget)
        costs = torch.from_numpy(budget.costs(self.layout)).to(device)
        self.gate = search.gate.build(costs, budget.limit(self.layout))
        self._drawn = self.gate.draw()

    def step(self, gating: Gating, loss: Loss) -> Tensor:
        """One step of the gate; no weight gets a gradient."""
        values = self.gate.draw().requires_grad_()
        with gating.changed(gating.by(values)):
            value, (grad,) = loss.gradients(lambda: [values])
        assert grad is not None
        self.gate.step(grad)
        return value

    def values(self) -> Values:
        """A fresh draw, and its mean."""
        self._drawn = self.gate.draw()
        return self.still()

    def still(self) -> Values:
        """The last draw, and its mean."""
        return self._drawn, self.gate.mean()

    def mask(self) -> Mask:
        """The best-scored columns that fit."""
        return select(self.gate.scores().cpu().numpy(), self.layout, self.budget)

    def tensors(self) -> dict[str, Tensor]:
        """Where the gate stands."""
        return {"alpha": self.gate.alpha, "drawn": self._drawn}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Puts the gate there."""
        self.gate.alpha.copy_(tensors["alpha"])
        self._drawn = tensors["drawn"].to(self.gate.alpha.device)


class Fixed(Method):
    """A mask that no row changes; the model trains under it from the start."""

    def __init__(self, tables: Tables, budget: Budget, scores: NDArray[np.float64], device: torch.device) -> None:
        super().__init__(tables, budget)
        self._mask = select(scores, self.layout, budget)
        self._vector = torch.from_numpy(self._mask.vector).float().to(device)

    def mask(self) -> Mask:
        """The same at all times."""
        return self._mask

    def values(self) -> Values:
        """The mask."""
        return self._vector, self._vector

    def tensors(self) -> dict[str, Tensor]:
        """The mask."""
        return {"mask": self._vector}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """The mask, also where it was drawn from another seed."""
        self._vector = tensors["mask"].to(self._vector.device)
        self._mask = Mask.of(self.layout, tensors["mask"].numpy())


class BySize(Method):
    """Columns by the size of their numbers, now."""

    def __init__(self, tables: Tables, budget: Budget, search: Magnitude) -> None:
        super().__init__(tables, budget)
        budget.limit(self.layout)
        self._form = search.form

    def mask(self) -> Mask:
        """The largest columns that fit."""
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
    """SSEDS: the mean absolute gradient of each column's mask over the batches shown."""

    def __init__(self, tables: Tables, budget: Budget, device: torch.device) -> None:
        super().__init__(tables, budget)
        budget.limit(self.layout)
        self._sum = torch.zeros(self.layout.columns, dtype=torch.float64, device=device)
        self._ones = torch.ones(self.layout.columns, device=device)

    def step(self, gating: Gating, loss: Loss) -> Tensor:
        """Adds one batch."""
        values = self._ones.clone().requires_grad_()
        with gating.changed(gating.by(values)):
            value, (grad,) = loss.gradients(lambda: [values])
        assert grad is not None
        self._sum += grad.abs().double()
        return value

    def mask(self) -> Mask:
        """The columns that the loss feels most."""
        return select(self._sum.cpu().numpy(), self.layout, self.budget)

    def tensors(self) -> dict[str, Tensor]:
        """The sums so far."""
        return {"sum": self._sum}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """The sums so far."""
        self._sum.copy_(tensors["sum"])


class ByRounds(Method):
    """Rounds: columns go in several prunings, those whose loss rises least per cost; training goes on between."""

    def __init__(self, tables: Tables, budget: Budget, search: Rounds, steps: int | None, device: torch.device) -> None:
        super().__init__(tables, budget)
        if steps is None or steps < search.rounds:
            raise SettingsError(
                f"rounds prunes {search.rounds} times, spread over the steps: got steps={steps}. "
                f"Give Pruner(steps=...), how many times step() will be called, at least {search.rounds}."
            )
        self._bound = budget.fixed(self.layout)
        self._targets = targets(self._bound, Mask.all(self.layout), search.rounds)
        self._ends = [(place + 1) * steps // search.rounds for place in range(search.rounds)]
        self._mask = Mask.all(self.layout)
        columns = self.layout.columns
        self._rise = torch.zeros(columns, dtype=torch.float64, device=device)
        self._steps = torch.zeros(1, dtype=torch.long)

    def step(self, gating: Gating, loss: Loss) -> Tensor:
        """Adds one batch's derivatives; prunes where a round ends."""
        leaves: list[tuple[Site, Tensor]] = []
        factors = self._vector().split(self.layout.widths)

        def change(site: Site, output: Tensor) -> Tensor:
            leaf = (output.detach() * site.cut(factors).to(output.device, output.dtype)).requires_grad_()
            leaves.append((site, leaf))
            return leaf

        with gating.changed(change):
            value, grads = loss.gradients(lambda: [leaf for _, leaf in leaves])
        self._add(leaves, grads)
        self._steps += 1
        round_ = next((k for k, end in enumerate(self._ends) if int(self._steps) == end), None)
        if round_ is not None:
            self._mask = self._pruned(self._targets[round_])
            self._rise.zero_()
        return value

    def _add(self, leaves: list[tuple[Site, Tensor]], grads: list[Tensor | None]) -> None:
        """Rows are the outputs' first axis; a row's derivative by a mask sums all places that read the table."""
        felt: dict[tuple[int, int], Tensor] = {}
        for (site, leaf), grad in zip(leaves, grads, strict=True):
            if grad is None or not leaf.numel():
                continue
            rows = (
                (grad.double() * leaf.detach().double()).flatten(1, -2).sum(1)
                if leaf.dim() > 2
                else grad.double() * leaf.detach()
            )
            for field, part in zip(
                site.fields, rows.split([self.layout.widths[j] for j in site.fields], 1), strict=True
            ):
                key = (field, len(part))
                felt[key] = felt[key] + part if key in felt else part
        starts = self.layout.starts
        for (field, rows_of), part in felt.items():
            added = part.square().sum(0) * (rows_of / 2) - part.sum(0)  # the loss is a mean over rows
            self._rise[starts[field] : starts[field + 1]] += added.to(self._rise.device)

    def _pruned(self, target: int) -> Mask:
        narrow = self._mask.layout
        rises = self._rise.cpu().numpy()[self._mask.indices]
        bound = replace(self._bound, amount=target).within(narrow)
        return self._mask.then(select(worth(rises, self._bound.costs(narrow)), narrow, bound))

    def mask(self) -> Mask:
        """The columns after the last round; before it, what is left pruned at once to the budget."""
        if int(self._steps) >= self._ends[-1]:
            return self._mask
        return self._pruned(self._targets[-1])

    def _vector(self) -> Tensor:
        return torch.from_numpy(self._mask.vector).float().to(self._rise.device)

    def values(self) -> Values:
        """The columns that are left."""
        return self._vector(), self._vector()

    def tensors(self) -> dict[str, Tensor]:
        """Columns left, derivatives since the last pruning, and steps taken."""
        return {"mask": self._vector(), "rise": self._rise, "steps": self._steps}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Takes a stored state back."""
        self._mask = Mask.of(self.layout, tensors["mask"].numpy())
        self._rise.copy_(tensors["rise"])
        self._steps.copy_(tensors["steps"])


def method_of(search: Search, tables: Tables, budget: Budget, steps: int | None, device: torch.device) -> Method:
    """The search as a loop of the user's drives it."""
    layout = tables.layout
    budget.limit(layout)  # a budget that cannot be met is refused before any work
    match search:
        case Gated():
            if search.stages:
                raise SettingsError("stages are planned by our own loop. In yours, compact() and make a new pruner.")
            return ByGate(tables, budget, search, device)
        case SSEDS():
            return ByFeeling(tables, budget, device)
        case Rounds():
            return ByRounds(tables, budget, search, steps, device)
        case Magnitude():
            return BySize(tables, budget, search)
        case MDE():
            check_smallest("mde", budget, layout, (1,) * len(layout.schema))
            return Fixed(tables, budget, search.scores(layout), device)
        case Uniform():
            turns = np.concatenate([np.arange(width) for width in layout.widths])
            return Fixed(tables, budget, -turns.astype(np.float64), device)
        case Random():
            return Fixed(tables, budget, torch.rand(layout.columns, dtype=torch.float64).numpy(), device)
    name = type(search).__name__ if isinstance(search, Search) else repr(search)
    why = REFUSED.get(name, "is not a search that a pruner knows")
    raise SettingsError(
        f"{name} {why}. In your own loop use a gate (HAM, SAM, SamSigmoid, SamGS, HamP) or SSEDS, Rounds, Magnitude, "
        "MDE, Uniform, Random."
    )
