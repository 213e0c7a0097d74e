"""Elimination in a user's training loop: collects the expansion from the batches of all steps."""

import torch
from torch import Tensor

from fieldwise.core.budget import Budget
from fieldwise.core.mask import Mask
from fieldwise.core.select import select
from fieldwise.pruning.gating import Gating
from fieldwise.pruning.sites import Tables
from fieldwise.searches.elimination import Elimination, fields_of, groups_of, ranks
from fieldwise.searches.loop_methods import Loss, Method
from fieldwise.searches.loop_slopes import row_slopes


class ByElimination(Method):
    """Elimination by one expansion: drops columns one by one, from the derivatives of all batches so far."""

    learns = True

    def __init__(self, tables: Tables, budget: Budget, search: Elimination, device: torch.device) -> None:
        super().__init__(tables, budget)
        self._ridge, self._last, self._groups = search.ridge, search.last_column, groups_of(self.layout)
        columns = self.layout.columns
        self._ones = torch.ones(columns, device=device)
        self._rows = torch.zeros(1, dtype=torch.float64)
        self._gradient = torch.zeros(columns, dtype=torch.float64, device=device)
        self._curvature = [torch.zeros(len(g), len(g), dtype=torch.float64, device=device) for g in self._groups]

    def step(self, gating: Gating, loss: Loss) -> Tensor:
        """Add the derivatives of one batch."""
        value, felt = row_slopes(gating, loss, self.layout, self._ones)
        starts, device = self.layout.starts, self._ones.device
        for count in {rows for _, rows in felt}:
            slopes = torch.zeros(count, self.layout.columns, dtype=torch.float64, device=device)
            for (field, rows), part in felt.items():
                if rows == count:
                    slopes[:, starts[field] : starts[field + 1]] = count * part.to(device)  # the loss is a mean
            self._gradient += slopes.sum(0)
            for square, group in zip(self._curvature, self._groups, strict=True):
                part = slopes[:, torch.from_numpy(group).to(device)]
                square += part.T @ part
        self._rows += max((rows for _, rows in felt), default=0)
        return value

    def mask(self) -> Mask:
        """Return the columns that are eliminated last, within the budget."""
        rows = max(1.0, float(self._rows))
        scores = ranks(
            self._gradient.cpu().numpy() / rows,
            [square.cpu().numpy() / rows for square in self._curvature],
            self.budget.costs(self.layout),
            self._groups,
            self._ridge,
            fields_of(self.layout, self.layout.columns),
            self._last,
        )
        return select(scores, self.layout, self.budget)

    def tensors(self) -> dict[str, Tensor]:
        """Return the sums so far."""
        squares = {f"curvature.{place}": square for place, square in enumerate(self._curvature)}
        return {"rows": self._rows, "gradient": self._gradient, **squares}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Restore the sums."""
        self._rows.copy_(tensors["rows"])
        self._gradient.copy_(tensors["gradient"])
        for place, square in enumerate(self._curvature):
            square.copy_(tensors[f"curvature.{place}"])
