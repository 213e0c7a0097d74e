"""Magnitude pruning: columns by the norm of their pretrained weights, a strong baseline."""

import time
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from fieldwise.core.budget import Budget
from fieldwise.core.select import select
from fieldwise.core.watcher import Watcher
from fieldwise.models.model import FieldTables, HeadModel
from fieldwise.searches.search import Search, SearchResult, finish
from fieldwise.tables.shards import shards_of
from fieldwise.train.task import Task


class Magnitude(Search):
    """Scores a column by its norm over all ids of the pretrained table."""

    shards = True

    form: Literal["raw", "rms"] = "raw"
    """raw: the Euclidean norm, which grows with the cardinality; rms: the norm per id, comparable across fields."""

    def run(self, task: Task, budget: Budget, folder: Path | None, watcher: Watcher | None) -> SearchResult:
        """Keep the columns with the largest norm within the budget."""
        started = time.perf_counter()
        model = task.starting_model()
        tables = [(model.embedding, j) for j, width in enumerate(model.layout.widths) if width]
        linear = budget.counted(model.linear)
        if linear is not None and isinstance(model, HeadModel) and model.first_order is not None:
            tables += [(model.first_order, j) for j, width in enumerate(linear.widths) if width]
        with torch.no_grad():
            scores = torch.cat([self._squares(*table) for table in tables]).sqrt()  # (S,)
        mask = select(scores.cpu().numpy(), model.layout, budget, linear)
        return finish(task, budget, mask, model, seconds=time.perf_counter() - started)

    def _squares(self, embedding: FieldTables, field: int) -> Tensor:
        """The sum or mean of each column's squares, (width,)."""
        squares, shards = embedding.table(field).double().square(), shards_of(embedding, field)
        if shards is None:
            return squares.sum(0) if self.form == "raw" else squares.mean(0)
        total = shards[0].total(squares.sum(0))
        return total if self.form == "raw" else total / embedding.layout.schema.cardinalities[field]
