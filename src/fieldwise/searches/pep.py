"""PEP (Liu et al. 2021), plug-in embedding pruning: every entry has a threshold that rises until few are left.

V^ = sign(V) * relu(|V| - sigmoid(t)). One Adam with weight decay over everything, t included: since t starts far below
zero, that decay is what raises it. PEP drops single entries and stops once few enough are left; the tables start again
from where they began. Ours: it ends with exactly the budget's share of entries, those furthest above their threshold;
and since our tables are dense, columns are then kept by the share of their entries among those. The summary
says how many entries PEP keeps, and what a dense layout would store to hold them all.
"""

from pathlib import Path

import torch
from pydantic import Field
from torch import Tensor, nn

from fieldwise.core.budget import Budget
from fieldwise.core.records import Epoch, SearchSummary
from fieldwise.core.select import select
from fieldwise.core.watcher import Watcher
from fieldwise.models.compact import compact
from fieldwise.models.model import CTRModel
from fieldwise.searches.search import Restarting, SearchResult
from fieldwise.tables.embedding import FieldEmbedding
from fieldwise.tables.state import Tensors, named, under
from fieldwise.train.checkpoint import weights
from fieldwise.train.evaluate import evaluate
from fieldwise.train.loop import Training, TrainingPlan, fit
from fieldwise.train.randomness import randomness
from fieldwise.train.task import Task


class PEP(Restarting):
    """Learns a threshold for every entry, and keeps the columns that hold most of what stays above."""

    threshold: float = -15.0
    """Where every t starts."""
    decay: float = Field(1e-5, gt=0)
    """Weight decay on everything; it raises the thresholds, by about the learning rate at each step."""
    speed: float = Field(1.0, gt=0)
    """Thresholds rise so many times faster (ours): 1 needs thousands of steps to reach the size of the numbers."""
    epochs: int = Field(50, ge=1)
    """At most so many passes over the training rows; it stops once few enough entries are left."""
    batch: int = Field(2048, ge=2)
    """Rows per step."""
    learning_rate: float = Field(1e-3, gt=0)
    """Of Adam, on everything."""
    every: int = Field(10, ge=1)
    """Steps between two counts of the entries that are left."""

    def run(self, task: Task, budget: Budget, folder: Path | None, watcher: Watcher | None) -> SearchResult:
        """Raises thresholds until the budget's share of entries is left, then keeps whole columns."""
        model = self.full_model(task)
        layout = model.layout
        costs, limit = budget.costs(layout), budget.limit(layout)
        target = max(1, layout.params * limit // int(costs.sum()))
        with randomness(task.seed, "thresholds"):  # building tables draws numbers, though all are overwritten
            net = Thresholded(model, self.threshold, self.speed).to(task.torch_device)
        watch = Countdown(net, target, self.every)
        training = Training(batch=self.batch, learning_rate=self.learning_rate, epochs=self.epochs)
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
        history = fit(net, task, training, plan, folder, watcher)
        if watch.snapshot:
            net.load_state_dict(watch.snapshot)
        kept = best_entries(net.margins(), target)
        counts = torch.cat([part.sum(0) for part in kept]).cpu().numpy()  # (S,)
        mask = select(counts / layout.rows, layout, budget)
        small = compact(self.full_model(task), mask).eval()
        summary = SearchSummary(
            steps=watch.steps,
            epochs=len(history) - 1,
            evaluated_auc=evaluate(net, task.valid).auc,
            selected_auc=evaluate(small, task.valid).auc,
            raw_live=int((counts > 0).sum()),
            reactivations=0,
            nonzeros=int(counts.sum()),
            dense=int(layout.rows[counts > 0].sum()),
        )
        seconds = sum(epoch.seconds for epoch in history)
        return SearchResult(budget, mask, small, summary, tuple(history), seconds=seconds)


class Thresholded(nn.Module):
    """A full model whose embeddings pass soft thresholds of their own."""

    def __init__(self, model: CTRModel, start: float, speed: float) -> None:
        super().__init__()
        self.model, self._speed = model, speed
        self.thresholds = FieldEmbedding(model.layout, 0.0)  # t / speed: a step of Adam then moves t by `speed` steps
        with torch.no_grad():
            for table in self.thresholds.parameters():
                table.fill_(start / speed)

    def forward(self, ids: Tensor) -> Tensor:
        """Logits (B,) of ids (B, F)."""
        v = self.model.embedding(ids)  # (B, S)
        bound = torch.sigmoid(self._speed * self.thresholds(ids))
        return self.model.logits(ids, torch.sign(v) * torch.relu(v.abs() - bound))

    def decay(self, strength: float) -> Tensor:
        """What weight decay within Adam adds to the gradient, as a penalty."""
        total = torch.stack([weight.square().sum() for weight in self.parameters()]).sum()
        return 0.5 * strength * total

    @torch.no_grad()
    def margins(self) -> list[Tensor]:
        """How far every entry of every field is above its threshold, (cardinality, width) each."""
        fields = [j for j, width in enumerate(self.model.layout.widths) if width]
        pairs = [(self.model.embedding.table(j), self.thresholds.table(j)) for j in fields]
        return [v.abs() - torch.sigmoid(self._speed * t) for v, t in pairs]


def best_entries(margins: list[Tensor], count: int) -> list[Tensor]:
    """Exactly `count` entries, those furthest above their threshold, as truth values of the same shapes."""
    flat = torch.cat([part.flatten() for part in margins])
    kept = torch.zeros(len(flat), dtype=torch.bool, device=flat.device)
    kept[torch.sort(flat, descending=True, stable=True).indices[:count]] = True
    parts = kept.split([part.numel() for part in margins])
    return [part.view(shape.shape) for part, shape in zip(parts, margins, strict=True)]


class Countdown:
    """Counts the entries that are left, and remembers the weights when they are first few enough."""

    def __init__(self, net: Thresholded, target: int, every: int) -> None:
        self._net, self._target, self._every = net, target, every
        self.steps = 0
        self.snapshot: Tensors = {}

    def left(self) -> int:
        """Entries above their threshold."""
        return sum(int((part > 0).sum()) for part in self._net.margins())

    def step(self) -> None:
        """Before a step of the training."""
        if not self.snapshot and self.steps % self._every == 0 and self.left() <= self._target:
            self.snapshot = weights(self._net)
        self.steps += 1

    def over(self, history: list[Epoch]) -> bool:
        """Whether few enough have been left; an unknown value's empty entries do not make it so before training."""
        return len(history) > 1 and bool(self.snapshot)

    def tensors(self) -> Tensors:
        """What a checkpoint keeps beside the model."""
        return {"steps": torch.tensor(self.steps), **named("snapshot", self.snapshot)}

    def restore(self, tensors: Tensors) -> None:
        """Takes a checkpoint back."""
        self.steps, self.snapshot = int(tensors["steps"]), under("snapshot", tensors)
