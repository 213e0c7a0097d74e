"""The same width for every field: the baseline that a search must beat."""

import time
from pathlib import Path

import numpy as np

from fieldwise.core.budget import Budget
from fieldwise.core.select import select
from fieldwise.core.watcher import Watcher
from fieldwise.searches.search import Search, SearchResult, result_of
from fieldwise.train.task import Task


class Uniform(Search):
    """First columns of every field, one round after the other, while the budget lasts."""

    def run(self, task: Task, budget: Budget, folder: Path | None, watcher: Watcher | None) -> SearchResult:
        """Keeps column 0 of all fields, then column 1, and so on; what is left over goes to the first fields."""
        started = time.perf_counter()
        model = task.starting_model()
        rounds = np.concatenate([np.arange(width) for width in model.layout.widths])
        mask = select(-rounds, model.layout, budget)
        return result_of(task, model, mask, budget, time.perf_counter() - started)
