"""From scores to a mask: the one way every scoring method ends."""

import numpy as np
from numpy.typing import ArrayLike

from fieldwise.core.budget import Budget
from fieldwise.core.mask import Mask
from fieldwise.core.schema import Layout


def select(scores: ArrayLike, layout: Layout, budget: Budget) -> Mask:
    """The best columns within the budget: by falling score, each taken if it still fits.

    In columns this keeps exactly the budget; in parameters or bytes no left-out column would still fit. Equal
    scores keep the earlier column.
    """
    values = np.asarray(scores, dtype=np.float64)
    if values.shape != (layout.columns,) or not np.isfinite(values).all():
        raise AssertionError(f"scores must be {layout.columns} finite numbers, got shape {values.shape}")
    costs, room = budget.costs(layout), budget.limit(layout)
    kept = np.zeros(layout.columns, dtype=np.bool_)
    for column in np.argsort(-values, kind="stable"):
        if costs[column] <= room:
            kept[column] = True
            room -= int(costs[column])
    return Mask.of(layout, kept)
