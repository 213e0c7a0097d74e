"""Rounds in a user's training loop: collects derivatives from the batches between two prunings."""

from dataclasses import replace

import torch
from torch import Tensor

from fieldwise.core.budget import Budget
from fieldwise.core.errors import SettingsError
from fieldwise.core.mask import Mask
from fieldwise.core.select import select
from fieldwise.pruning.gating import Gating
from fieldwise.pruning.sites import Tables
from fieldwise.searches.loop_methods import Loss, Method, Values
from fieldwise.searches.loop_slopes import row_slopes
from fieldwise.searches.rounds import Rounds, increase_per_cost, targets


class ByRounds(Method):
    """Rounds: prunes in several steps the columns with the least rise in loss per cost; training continues between."""

    learns = True

    def __init__(self, tables: Tables, budget: Budget, search: Rounds, steps: int | None, device: torch.device) -> None:
        super().__init__(tables, budget)
        if steps is None or steps < search.rounds:
            raise SettingsError(
                f"rounds prunes {search.rounds} times, spread over the steps: got steps={steps}. "
                f"Set Pruner(steps=...) to the number of calls of step(), at least {search.rounds}."
            )
        self._bound = budget.fixed(self.layout)
        self._targets = targets(self._bound, Mask.all(self.layout), search.rounds)
        self._ends = [(place + 1) * steps // search.rounds for place in range(search.rounds)]
        self._mask = Mask.all(self.layout)
        columns = self.layout.columns
        self._rise = torch.zeros(columns, dtype=torch.float64, device=device)
        self._steps = torch.zeros(1, dtype=torch.long)

    def step(self, gating: Gating, loss: Loss) -> Tensor:
        """Add the derivatives of one batch; prune at the end of a round."""
        value, felt = row_slopes(gating, loss, self.layout, self._vector())
        self._add(felt)
        self._steps += 1
        round_ = next((k for k, end in enumerate(self._ends) if int(self._steps) == end), None)
        if round_ is not None:
            self._mask = self._pruned(self._targets[round_])
            self._rise.zero_()
        return value

    def _add(self, felt: dict[tuple[int, int], Tensor]) -> None:
        starts = self.layout.starts
        for (field, rows_of), part in felt.items():
            added = part.square().sum(0) * (rows_of / 2) - part.sum(0)  # the loss is a mean over rows
            self._rise[starts[field] : starts[field + 1]] += added.to(self._rise.device)

    def _pruned(self, target: int) -> Mask:
        narrow = self._mask.layout
        rises = self._rise.cpu().numpy()[self._mask.indices]
        bound = replace(self._bound, amount=target).within(narrow)
        return self._mask.then(select(increase_per_cost(rises, self._bound.costs(narrow)), narrow, bound))

    def mask(self) -> Mask:
        """Return the columns after the last round; before that, prune to the budget in one step."""
        if int(self._steps) >= self._ends[-1]:
            return self._mask
        return self._pruned(self._targets[-1])

    def _vector(self) -> Tensor:
        return torch.from_numpy(self._mask.vector).float().to(self._rise.device)

    def values(self) -> Values:
        """Return the remaining columns as a mask."""
        return self._vector(), self._vector()

    def tensors(self) -> dict[str, Tensor]:
        """Return the remaining columns, the derivatives since the last pruning, and the step count."""
        return {"mask": self._vector(), "rise": self._rise, "steps": self._steps}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Restore a stored state."""
        self._mask = Mask.of(self.layout, tensors["mask"].numpy())
        self._rise.copy_(tensors["rise"])
        self._steps.copy_(tensors["steps"])
