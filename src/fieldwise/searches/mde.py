"""MDE (Ginart et al. 2021), mixed dimension embeddings: widths in closed form, from cardinalities only.

width = lambda * cardinality ** -temperature, at least 1, rounded. Our choice: lambda is the largest that meets the
budget. Each column enters the model at a lambda that can be computed, so sorting columns by it replaces a bisection,
and the rest of the budget is filled column by column in the same order.
"""

import time
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fieldwise.core.budget import Budget
from fieldwise.core.schema import Layout
from fieldwise.core.select import select
from fieldwise.core.watcher import Watcher
from fieldwise.searches.search import Restarting, SearchResult, check_smallest, finish
from fieldwise.train.task import Task


class MDE(Restarting):
    """Gives narrower tables to fields with more ids."""

    shards = True

    temperature: float = Field(0.3, ge=0)
    """How fast widths decrease with cardinality, at least 0; 0 is uniform."""
    rounding: Literal["nearest", "power-of-two"] = "nearest"
    """nearest: round widths to integers; power-of-two: to powers of two."""

    def run(self, task: Task, budget: Budget, folder: Path | None, watcher: Watcher | None) -> SearchResult:
        """Keep the first columns of every field, as many as the formula gives."""
        started = time.perf_counter()
        check_smallest("mde", budget, task.layout, (1,) * len(task.schema), task.linear)
        scores, first = self.scores(task.layout), budget.counted(task.linear)
        kept = np.full(first.columns if first else 0, scores.max() + 1)  # all first-order weights
        mask = select(np.concatenate([scores, kept]), task.layout, budget, task.linear)
        small = self.narrow_model(task, mask)
        return finish(task, budget, mask, small, seconds=time.perf_counter() - started)

    def scores(self, layout: Layout) -> NDArray[np.float64]:
        """1 / lambda at which each column enters, (S,); the first column of a field always does."""
        place = np.concatenate([np.arange(width) for width in layout.widths])
        # the width before rounding at which a column enters
        nearest = place + 0.5
        power = 2.0 ** (np.floor(np.log2(np.maximum(place, 1))) + 0.5)
        enters = nearest if self.rounding == "nearest" else power
        falling = layout.rows ** -float(self.temperature) / enters
        return np.where(place == 0, falling.max() + 1 + falling, falling)
