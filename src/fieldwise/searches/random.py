"""Random columns: the baseline that every search that learns must beat."""

import time
from pathlib import Path

import torch

from fieldwise.core.budget import Budget
from fieldwise.core.select import select
from fieldwise.core.watcher import Watcher
from fieldwise.searches.search import Search, SearchResult, finish
from fieldwise.train.randomness import randomness
from fieldwise.train.task import Task


class Random(Search):
    """Scores columns at random, from the task's seed."""

    shards = True

    def run(self, task: Task, budget: Budget, folder: Path | None, watcher: Watcher | None) -> SearchResult:
        """Keep random columns within the budget."""
        started = time.perf_counter()
        model = task.starting_model()
        with randomness(task.seed, "random search"):
            scores = torch.rand(len(budget.costs(model.layout, model.linear)))
        mask = select(scores.numpy(), model.layout, budget, model.linear)
        return finish(task, budget, mask, model, seconds=time.perf_counter() - started)
