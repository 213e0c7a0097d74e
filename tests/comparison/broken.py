"""Searches that do not end well."""

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
    """Takes its process with it, as a system short of memory would."""

    def run(self, task: Task, budget: Budget, folder: Path | None, watcher: Watcher | None) -> SearchResult:
        os._exit(9)
