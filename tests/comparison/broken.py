"""Searches that fail."""

import os
from pathlib import Path

from fieldwise.core.budget import Budget
from fieldwise.core.watcher import Watcher
from fieldwise.searches.search import Search, SearchResult
from fieldwise.train.task import Task


class Raises(Search):
    """Has a bug."""

    def run(self, task: Task, budget: Budget, folder: Path | None, watcher: Watcher | None) -> SearchResult:
        raise RuntimeError("two\nlines")


class Dies(Search):
    """Kills its process, as the system does when memory runs out."""

    def run(self, task: Task, budget: Budget, folder: Path | None, watcher: Watcher | None) -> SearchResult:
        os._exit(9)
