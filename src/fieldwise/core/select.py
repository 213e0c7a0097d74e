"""From scores to a mask: the last step of every scoring method."""

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fieldwise.core.budget import Budget, BudgetInput
from fieldwise.core.errors import MaskError, TrainingError
from fieldwise.core.mask import Mask
from fieldwise.core.schema import Layout


def select(scores: ArrayLike, layout: Layout, budget: BudgetInput, linear: Layout | None = None) -> Mask:
    """Keeps the best columns within the budget: in descending order of score, each that still fits.

    A budget in columns is met exactly; in parameters or bytes, no dropped column would still fit. Ties keep the
    earlier column. Under a budget with `align`, the columns of a field are kept in groups of that size, best first,
    and a group's score is the mean of its columns' scores. The budget may be text, such as "25%".

    A budget in bytes counts the first-order weights of `linear`; their scores follow those of the columns. At least one
    column is kept, whatever the scores of first-order weights.
    """
    budget = Budget.parse(budget)
    linear = budget.counted(linear)
    values = _numbers(scores, layout.columns + (linear.columns if linear else 0))
    wrong = values[~np.isfinite(values)]
    if len(wrong):
        raise TrainingError(
            f"{len(wrong)} of {len(values)} columns have a score that is not finite, the first is {wrong[0]}. All must "
            "be finite: the model that was searched has diverged. Lower the learning rate, and train it again."
        )
    chosen = _Choice(values, layout, budget, linear)
    room = budget.limit(layout, linear)
    if budget.fits is None:
        found = chosen.within(room)
        return found.storing(budget.int8) if budget.int8 else found
    low, high = chosen.least, int(chosen.costs.sum())
    while low < high:  # the largest cost whose mask also fits
        middle = (low + high + 1) // 2
        low, high = (middle, high) if budget.fits(chosen.within(middle)) else (low, middle - 1)
    return chosen.filled(chosen.within(low), budget.fits)


class _Choice:
    """The order in which columns are kept."""

    def __init__(self, values: NDArray[np.float64], layout: Layout, budget: Budget, linear: Layout | None) -> None:
        self._layout, self._linear, self.costs = layout, linear, budget.costs(layout, linear)
        self._groups, owners = _groups(values[: layout.columns], layout, budget.align), layout.owners
        means = _means(values, self._groups, owners)
        self._fields = [int(owners[group[0]]) for group in self._groups]
        self._leading = {self._fields.index(field) for field in set(self._fields)}
        """The best group of each field."""
        first = range(layout.columns, len(values))  # each first-order weight is a group of its own
        self._groups += [np.asarray([place]) for place in first]
        self._fields += [-place for place in first]
        self._order = np.argsort(-np.concatenate([means, values[layout.columns :]]), kind="stable").tolist()
        self._sizes = [int(self.costs[group].sum()) for group in self._groups]
        self.least = min(self._sizes[place] for place in self._leading)

    def within(self, room: int) -> Mask:
        """The columns to keep for at most this cost."""
        kept, full = np.zeros(len(self.costs), dtype=np.bool_), set[int]()
        # the best column comes first, because first-order weights could leave no room for any
        best = [place for place in self._order if place in self._leading and self._sizes[place] <= room][:1]
        for place in (*best, *self._order):
            field, group = self._fields[place], self._groups[place]
            if kept[group[0]]:
                continue
            if field in full or self._sizes[place] > room:
                full.add(field)  # a smaller group of this field may still fit, but the width would be no multiple
            else:
                kept[group] = True
                room -= self._sizes[place]
        return Mask.of(self._layout, kept, self._linear)

    def filled(self, mask: Mask, fits: Callable[[Mask], bool]) -> Mask:
        """The mask with each further column that fits, best first."""
        kept, full = mask.over(self._linear), set[int]()
        for place in self._order:
            field, group = self._fields[place], self._groups[place]
            if kept[group[0]] or field in full:
                continue
            more = kept.copy()
            more[group] = True
            found = Mask.of(self._layout, more, self._linear)
            if fits(found):
                kept, mask = more, found
            else:
                full.add(field)  # its other columns cost the same
        return mask


def _numbers(scores: ArrayLike, count: int) -> NDArray[np.float64]:
    """Scores as an array, (count,)."""
    try:
        values = np.asarray(scores, dtype=np.float64)
        got = f"shape {values.shape}"
    except (ValueError, TypeError) as error:
        values, got = np.empty((0, 0)), str(error)
    if values.shape != (count,):
        raise MaskError(
            f"Scores must be one number per column, shape ({count},). Got {got}. Give the scores of a model with this "
            "layout."
        )
    return values


def _groups(values: NDArray[np.float64], layout: Layout, align: int) -> list[NDArray[np.int64]]:
    """The columns of each field by descending score, in groups of `align`; a field's last group may be smaller."""
    found: list[NDArray[np.int64]] = []
    for start, width in zip(layout.starts, layout.widths, strict=False):
        order = start + np.argsort(-values[start : start + width], kind="stable")
        found += [order[first : first + align] for first in range(0, width, align)]
    return found


def _means(
    values: NDArray[np.float64], groups: list[NDArray[np.int64]], owners: NDArray[np.int64]
) -> NDArray[np.float64]:
    """The mean score of each group, at most that of the previous group of its field, whatever the rounding."""
    means = np.array([values[group].mean() for group in groups])
    for place in range(1, len(groups)):
        if owners[groups[place][0]] == owners[groups[place - 1][0]]:
            means[place] = min(means[place], means[place - 1])
    return means
