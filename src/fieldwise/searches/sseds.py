"""SSEDS (Qu et al. 2022), single-shot embedding dimension search: how much the loss feels each column.

A column's score is the mean, over validation batches, of |dL/dmask| at mask = 1 on the pretrained model. Ours: the
model is seen as an evaluation sees it, and any budget is met by the best columns that fit.
"""

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
from fieldwise.searches.search import Search, SearchResult, result_of
from fieldwise.train.task import Task


class SSEDS(Search):
    """One pass over the validation rows of a pretrained model, no training."""

    batch: int = Field(2048, ge=1)
    """Rows per gradient; its absolute value is averaged over batches."""

    def run(self, task: Task, budget: Budget, folder: Path | None, watcher: Watcher | None) -> SearchResult:
        """Keeps the columns that the loss feels most."""
        started = time.perf_counter()
        model = task.starting_model()
        mask = select(self.scores(model, task).cpu().numpy(), model.layout, budget)
        return result_of(task, model, mask, budget, time.perf_counter() - started)

    def scores(self, model: CTRModel, task: Task) -> Tensor:
        """The mean absolute gradient of every column's mask, (S,)."""
        model.eval()
        ones = torch.ones(model.layout.columns, device=task.torch_device, requires_grad=True)
        grads = []
        for batch in task.valid.ordered(self.batch):
            loss = functional.binary_cross_entropy_with_logits(model(batch.ids, ones), batch.labels)
            grads.append(torch.autograd.grad(loss, ones)[0].abs().double())
        return torch.stack(grads).mean(0)
