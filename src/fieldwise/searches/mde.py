"""MDE (Ginart et al. 2021), mixed dimension embeddings: widths in closed form from cardinalities alone.

width = lambda * cardinality ** -temperature, at least 1, rounded. Ours: lambda is the largest that meets the budget. A
column is in the model once lambda passes a bound of its own, so ordering columns by that bound is bisecting lambda, and
what is left at the edge goes on in the same order, column by column.
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
from fieldwise.searches.search import Restarting, SearchResult, check_smallest, result_of
from fieldwise.train.task import Task


class MDE(Restarting):
    """The rarer an id is on average, the narrower its field."""

    temperature: float = Field(0.3, ge=0)
    """How fast widths fall with cardinality; 0 is uniform."""
    rounding: Literal["nearest", "power-of-two"] = "nearest"
    """Widths as whole numbers, or as powers of two."""

    def run(self, task: Task, budget: Budget, folder: Path | None, watcher: Watcher | None) -> SearchResult:
        """Keeps the first columns of every field, as many as the formula says."""
        started = time.perf_counter()
        check_smallest("mde", budget, task.layout, (1,) * len(task.schema))
        mask = select(self.scores(task.layout), task.layout, budget)
        return result_of(task, self.narrow_model(task, mask), mask, budget, time.perf_counter() - started)

    def scores(self, layout: Layout) -> NDArray[np.float64]:
        """1 / lambda at which each column enters, (S,); the first of a field is always in."""
        place = np.concatenate([np.arange(width) for width in layout.widths])
        # the width before rounding at which a column is in
        nearest = place + 0.5
        power = 2.0 ** (np.floor(np.log2(np.maximum(place, 1))) + 0.5)
        enters = nearest if self.rounding == "nearest" else power
        falling = layout.rows ** -float(self.temperature) / enters
        return np.where(place == 0, falling.max() + 1 + falling, falling)
