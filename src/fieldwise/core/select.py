"""From scores to a mask: the last step of every scoring method."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fieldwise.core.budget import Budget, BudgetInput
from fieldwise.core.errors import MaskError, TrainingError
from fieldwise.core.mask import Mask
from fieldwise.core.schema import Layout


def select(scores: ArrayLike, layout: Layout, budget: BudgetInput) -> Mask:
    """Keeps the best columns within the budget: in descending order of score, each that still fits.

    A budget in columns is met exactly; in parameters or bytes, no dropped column would still fit. Ties keep the
    earlier column. Under a budget with `align`, the columns of a field are kept in groups of that size, best first,
    and a group's score is the mean of its columns' scores. The budget may be text, such as "25%".
    """
    budget = Budget.parse(budget)
    values = _numbers(scores, layout.columns)
    wrong = values[~np.isfinite(values)]
    if len(wrong):
        raise TrainingError(
            f"{len(wrong)} of {len(values)} columns have a score that is not finite, the first is {wrong[0]}. All must "
            "be finite: the model that was searched has diverged. Lower the learning rate, and train it again."
        )
    costs, room = budget.costs(layout), budget.limit(layout)
    kept = np.zeros(layout.columns, dtype=np.bool_)
    groups, owners, full = _groups(values, layout, budget.align), layout.owners, set[int]()
    for place in np.argsort(-_means(values, groups, owners), kind="stable"):
        group, field = groups[place], int(owners[groups[place][0]])
        if field in full or costs[group].sum() > room:
            full.add(field)  # a smaller group of this field may still fit, but the width would be no multiple
        else:
            kept[group] = True
            room -= int(costs[group].sum())
    return Mask.of(layout, kept)


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
