"""PEP (Liu et al. 2021), plug-in embedding pruning: every entry has a threshold that increases until few are left.

V^ = sign(V) * relu(|V| - sigmoid(t)). One Adam with weight decay updates all parameters including t. Since t starts far
below zero, the decay increases it. PEP drops single entries, stops once few enough are left, and trains again from the
initial tables. Our choices: the search ends with exactly the budget's fraction of entries, those furthest above their
threshold. Since our tables are dense, it then keeps the columns with the largest fraction of such entries. The summary
reports how many entries PEP keeps, and how many numbers a dense layout would store to contain all of them.
"""

from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from fieldwise.core.budget import Budget
from fieldwise.core.records import Epoch
from fieldwise.core.select import select
from fieldwise.core.watcher import Watcher
from fieldwise.models.compact import compact
from fieldwise.models.model import CTRModel, HeadModel
from fieldwise.searches.search import Restarting, SearchResult, finish
from fieldwise.searches.trained import AdamSearch
from fieldwise.tables.embedding import FieldEmbedding
from fieldwise.tables.state import Tensors, named, under
from fieldwise.train.checkpoint import weights
from fieldwise.train.evaluate import evaluate
from fieldwise.train.loop import fit
from fieldwise.train.plan import TrainingPlan
from fieldwise.train.randomness import randomness
from fieldwise.train.task import Task


class PEP(Restarting, AdamSearch):
    """Learns a threshold for every entry, and keeps the columns with most entries above it."""

    own_network: ClassVar[str] = "trains thresholds inside the tables, in place of your model"

    epochs: int = Field(50, ge=1)
    """Maximum number of passes over the training rows, at least 1; it stops once few enough entries are left."""
    threshold: float = -15.0
    """Initial value of every t."""
    decay: float = Field(1e-5, gt=0)
    """Weight decay of all parameters, above 0. It increases t by about the learning rate per step."""
    speed: float = Field(1.0, gt=0)
    """Factor on the thresholds' step size, above 0 (ours). With 1, reaching the size of the weights takes thousands of
    steps."""
    every: int = Field(10, ge=1)
    """Steps between two counts of the remaining entries, at least 1."""

    def run(self, task: Task, budget: Budget, folder: Path | None, watcher: Watcher | None) -> SearchResult:
        """Increase thresholds until the budget's fraction of entries is left, then keep whole columns."""
        model = self.full_model(task)
        layout = model.layout
        first = budget.counted(model.linear)
        tables, all_ = int(budget.costs(layout).sum()), int(budget.costs(layout, first).sum())
        limit = budget.limit(layout, first) - (all_ - tables)  # first-order weights are all kept
        target = max(1, layout.params * limit // tables)
        with randomness(task.seed, "thresholds"):  # building tables draws random numbers, which are then overwritten
            net = Thresholded(model, self.threshold, self.speed).to(task.torch_device)
        watch = Countdown(net, target, self.every)
        plan = TrainingPlan(
            stage="search",
            forward=net,
            evaluate=lambda: evaluate(net, task.valid),
            stop=watch.over,
            keep_best=False,
            before_step=watch.step,
            penalty=lambda: net.decay(self.decay),
            every_row=True,
            beside=watch,
        )
        history = fit(net, task, self.training(), plan, folder, watcher)
        if watch.snapshot:
            net.load_state_dict(watch.snapshot)
        kept = best_entries(net.margins(), target)
        counts = torch.cat([part.sum(0) for part in kept]).cpu().numpy()  # (S,)
        scores = np.concatenate([counts / layout.rows, np.full(first.columns if first else 0, 2.0)])
        mask = select(scores, layout, budget, first)
        return finish(
            task,
            budget,
            mask,
            compact(self.full_model(task), mask).eval(),
            history=history,
            steps=watch.steps,
            evaluated_auc=evaluate(net, task.valid).auc,
            raw_live=int((counts > 0).sum()),
            nonzeros=int(counts.sum()),
            dense=int(layout.rows[counts > 0].sum()),
        )


class Thresholded(nn.Module):
    """A full model with a soft threshold on every entry of its embeddings."""

    def __init__(self, model: CTRModel, start: float, speed: float) -> None:
        super().__init__()
        assert isinstance(model, HeadModel)
        self.model, self._speed = model, speed
        self.thresholds = FieldEmbedding(
            model.layout, 0.0
        )  # stores t / speed, so that a step of Adam changes t by `speed` steps
        with torch.no_grad():
            for table in self.thresholds.parameters():
                table.fill_(start / speed)

    def forward(self, ids: Tensor) -> Tensor:
        """Logits (B,) of ids (B, F)."""
        v = self.model.embedding(ids)  # (B, S)
        bound = torch.sigmoid(self._speed * self.thresholds(ids))
        return self.model.logits(ids, torch.sign(v) * torch.relu(v.abs() - bound))

    def decay(self, strength: float) -> Tensor:
        """The penalty whose gradient is Adam's weight decay."""
        total = torch.stack([weight.square().sum() for weight in self.parameters()]).sum()
        return 0.5 * strength * total

    @torch.no_grad()
    def margins(self) -> list[Tensor]:
        """Distance of every entry above its threshold, (cardinality, width) per field."""
        fields = [j for j, width in enumerate(self.model.layout.widths) if width]
        pairs = [(self.model.embedding.table(j), self.thresholds.table(j)) for j in fields]
        return [v.abs() - torch.sigmoid(self._speed * t) for v, t in pairs]


def best_entries(margins: list[Tensor], count: int) -> list[Tensor]:
    """Exactly `count` entries, those furthest above their threshold, as booleans of the same shapes."""
    flat = torch.cat([part.flatten() for part in margins])
    kept = torch.zeros(len(flat), dtype=torch.bool, device=flat.device)
    kept[torch.sort(flat, descending=True, stable=True).indices[:count]] = True
    parts = kept.split([part.numel() for part in margins])
    return [part.view(shape.shape) for part, shape in zip(parts, margins, strict=True)]


class Countdown:
    """Counts the remaining entries, and copies the weights when few enough remain for the first time."""

    def __init__(self, net: Thresholded, target: int, every: int) -> None:
        self._net, self._target, self._every = net, target, every
        self.steps = 0
        self.snapshot: Tensors = {}

    def left(self) -> int:
        """Number of entries above their threshold."""
        return sum(int((part > 0).sum()) for part in self._net.margins())

    def step(self) -> None:
        """Called before each training step."""
        if not self.snapshot and self.steps % self._every == 0 and self.left() <= self._target:
            self.snapshot = weights(self._net)
        self.steps += 1

    def over(self, history: list[Epoch]) -> bool:
        """Whether few enough remain; not before training, when the unknown ids' zero entries could satisfy it."""
        return len(history) > 1 and bool(self.snapshot)

    def tensors(self) -> Tensors:
        """State for a checkpoint, in addition to the model."""
        return {"steps": torch.tensor(self.steps), **named("snapshot", self.snapshot)}

    def restore(self, tensors: Tensors) -> None:
        """Restore a checkpoint."""
        self.steps, self.snapshot = int(tensors["steps"]), under("snapshot", tensors)
