"""The same width for every field: the baseline that a search must beat."""

import time
from pathlib import Path

from fieldwise.core.budget import Budget
from fieldwise.core.select import select
from fieldwise.core.watcher import Watcher
from fieldwise.searches.search import Search, SearchResult, finish
from fieldwise.searches.total import even_scores
from fieldwise.train.task import Task


class Uniform(Search):
    """Keeps the first columns of every field, the same number for each, until the budget is spent."""

    shards = True

    def run(self, task: Task, budget: Budget, folder: Path | None, watcher: Watcher | None) -> SearchResult:
        """Keep column 0 of all fields, then column 1, and so on; the first fields get the remainder.

        First-order weights that the budget counts are kept before any column.
        """
        started = time.perf_counter()
        model = task.starting_model()
        scores = even_scores(model.layout, budget.counted(model.linear))
        mask = select(scores, model.layout, budget, model.linear)
        return finish(task, budget, mask, model, seconds=time.perf_counter() - started)
