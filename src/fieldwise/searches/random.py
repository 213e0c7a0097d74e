"""Columns drawn by lot: the baseline that every search which learns must beat."""

import time
from pathlib import Path

import torch

from fieldwise.core.budget import Budget
from fieldwise.core.select import select
from fieldwise.core.watcher import Watcher
from fieldwise.searches.search import Search, SearchResult, result_of
from fieldwise.train.randomness import randomness
from fieldwise.train.task import Task


class Random(Search):
    """Scores are noise, drawn from the task's seed."""

    def run(self, task: Task, budget: Budget, folder: Path | None, watcher: Watcher | None) -> SearchResult:
        """Keeps random columns within the budget."""
        started = time.perf_counter()
        model = task.starting_model()
        with randomness(task.seed, "random search"):
            scores = torch.rand(model.layout.columns)
        mask = select(scores.numpy(), model.layout, budget)
        return result_of(task, model, mask, budget, time.perf_counter() - started)
