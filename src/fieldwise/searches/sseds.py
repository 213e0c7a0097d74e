"""SSEDS (Qu et al. 2022), single-shot embedding dimension search: columns by the gradient of their mask.

A column's score is the mean, over validation batches, of |dL/dmask| at mask = 1 on the pretrained model. Our choices:
the model is in evaluation mode, and the best columns that fit meet any budget.
"""

import math
import time
from pathlib import Path

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional

from fieldwise.core.budget import Budget
from fieldwise.core.select import select
from fieldwise.core.watcher import Watcher
from fieldwise.models.model import CTRModel
from fieldwise.processes.ranks import current
from fieldwise.searches.search import Search, SearchResult, finish
from fieldwise.train.task import Task


class SSEDS(Search):
    """Scores columns in one pass over the validation rows, without training."""

    shards = True

    batch: int = Field(2048, ge=1)
    """Rows per gradient, at least 1. The score averages absolute gradients over batches."""

    def run(self, task: Task, budget: Budget, folder: Path | None, watcher: Watcher | None) -> SearchResult:
        """Keep the columns with the largest mean absolute gradient."""
        started = time.perf_counter()
        model = task.starting_model()
        count = len(budget.costs(model.layout, model.linear))
        mask = select(self.scores(model, task, count).cpu().numpy(), model.layout, budget, model.linear)
        return finish(task, budget, mask, model, seconds=time.perf_counter() - started)

    def scores(self, model: CTRModel, task: Task, count: int | None = None) -> Tensor:
        """Mean absolute gradient of every column's mask, (S,), or (count,) with those of first-order weights."""
        model.eval()
        ones = torch.ones(count or model.layout.columns, device=task.torch_device, requires_grad=True)
        grads = [torch.zeros_like(ones, dtype=torch.float64, requires_grad=False)]
        for batch in task.valid.ordered(self.batch):
            loss = functional.binary_cross_entropy_with_logits(model(batch.ids, ones), batch.labels)
            grads.append(torch.autograd.grad(loss, ones)[0].abs().double())
        return current().total(torch.stack(grads).sum(0)) / math.ceil(len(task.valid) / self.batch)
