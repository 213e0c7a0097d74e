"""The order in which columns are eliminated, from one or more second-order expansions of the loss."""

from dataclasses import dataclass
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from fieldwise.core.errors import TrainingError

Floats = NDArray[np.float64]
Places = NDArray[np.int64]
NONE: Final = -1.0
"""A cost below that of no columns at all."""


@dataclass
class Order:
    """The columns that are left, the masks at which the loss is expanded next, and the order of the others."""

    costs: Places
    """Cost of every column, (n,)."""
    groups: list[Places]
    """Columns that may replace each other."""
    fields: Places
    """The field of every column; -1 for first-order weights, which no factor protects."""
    ridge: float
    last: float
    """Factor of the increase for the last column of a field."""
    masks: Floats
    """At the minimum of the last expansion; 0 for eliminated columns."""
    ranks: Floats
    """0 for the column that went first; columns that are left have no rank yet."""
    prices: Floats
    """Increase of the loss per cost at which each column went, with the factor of the last one; 0 if it has not."""
    dropped: int = 0
    lift: float | None = None
    """The ridge as a number, from the first expansion."""

    @classmethod
    def of(cls, costs: Places, groups: list[Places], fields: Places, ridge: float, last: float) -> Self:
        """No column is eliminated, all masks are 1."""
        count = len(costs)
        return cls(costs, groups, fields, ridge, last, np.ones(count), np.full(count, np.inf), np.zeros(count))

    @property
    def left(self) -> NDArray[np.bool_]:
        """Which columns are left, (n,)."""
        return np.isinf(self.ranks)

    @property
    def cost(self) -> int:
        """Cost of the columns that are left."""
        return int(self.costs[self.left].sum())

    def eliminate(self, gradient: Floats, curvature: list[Floats], down_to: float = NONE) -> Self:
        """Drop columns until the others cost at most `down_to`; the masks of these move to the minimum.

        `gradient` (n,) and `curvature`, by group, are those of the loss at `masks`.
        """
        self._check(gradient, curvature)
        parts = [self._part(gradient, square, group) for square, group in zip(curvature, self.groups, strict=True)]
        least, cost = np.array([part.least for part in parts]), self.cost
        while np.isfinite(least).any() and cost > down_to:
            chosen = int(least.argmin())
            gone = parts[chosen].drop()
            self.prices[gone] = least[chosen]
            self.ranks[gone], self.dropped, cost = self.dropped, self.dropped + 1, cost - int(self.costs[gone])
            least[chosen] = parts[chosen].least
        self.masks = np.zeros_like(self.masks)
        for part in parts:
            part.write(self.masks)
        return self

    def _part(self, gradient: Floats, square: Floats, group: Places) -> "Remaining":
        assert self.lift is not None
        own = self.left[group]
        places = group[own]
        lifted = square[np.ix_(own, own)] + self.lift * np.eye(len(places))
        masks = self.masks[places] - np.linalg.solve(lifted, gradient[places])
        inverse = np.asarray(np.linalg.inv(lifted), dtype=np.float64)
        return Remaining(inverse, masks, self.costs[places], self.fields[places], places, self.last)

    def _check(self, gradient: Floats, curvature: list[Floats]) -> None:
        """Refuse an expansion that is not finite; the first one sets the ridge."""
        diagonals = np.concatenate([square.diagonal() for square in curvature])
        if not (np.isfinite(diagonals).all() and np.isfinite(gradient).all()):
            raise TrainingError(
                "The derivatives of the loss by the columns' masks are not finite: the model that was searched has "
                "diverged. Lower the learning rate, and train it again."
            )
        if self.lift is None:
            self.lift = self.ridge * float(diagonals.mean()) or 1.0  # a model without any slope: every order is as good


class Remaining:
    """The columns of one group that are not eliminated yet, and the masks that minimize the expansion over them."""

    def __init__(
        self, inverse: Floats, masks: Floats, costs: Places, fields: Places, places: Places, last: float
    ) -> None:
        self._inverse, self._masks, self._costs = inverse, masks, costs.astype(np.float64)
        self._fields, self._places, self._last = fields, places, last
        self._left = np.ones(len(places), dtype=np.bool_)
        self._counts = np.bincount(fields + 1, minlength=1)
        self._counts[0] = 0  # first-order weights

    @property
    def per_cost(self) -> Floats:
        """Increase of the loss per cost if a column goes and the others move; infinite for those that went."""
        own = np.where(self._left, self._inverse.diagonal(), 1)
        factor = np.where(self._counts[self._fields + 1] == 1, self._last, 1.0)
        return np.where(self._left, factor * self._masks**2 / (2 * own) / self._costs, np.inf)

    @property
    def least(self) -> float:
        """The smallest increase per cost; infinite if no column is left."""
        return float(self.per_cost.min()) if len(self._places) else np.inf

    def drop(self) -> int:
        """Eliminate the column with the smallest increase per cost; returns its place among all columns."""
        gone = int(self.per_cost.argmin())
        found, column = int(self._places[gone]), self._inverse[:, gone].copy()
        self._masks -= column * (self._masks[gone] / column[gone])
        self._inverse -= np.outer(column, column / column[gone])
        self._left[gone] = False
        if self._fields[gone] >= 0:
            self._counts[self._fields[gone] + 1] -= 1
        if 2 * self._left.sum() <= len(self._left):  # smaller arrays from here on
            left = self._left
            self._inverse, self._masks, self._fields = (
                self._inverse[np.ix_(left, left)],
                self._masks[left],
                self._fields[left],
            )
            self._costs, self._places, self._left = self._costs[left], self._places[left], left[left]
        return found

    def write(self, masks: Floats) -> None:
        """Write the masks of the columns that are left to their places among all columns."""
        masks[self._places[self._left]] = self._masks[self._left]
