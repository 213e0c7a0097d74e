"""AutoDim (Zhao et al. 2021): a supernet that mixes candidate widths, with the mixture learned on validation batches.

Our choices: no field gets more columns than it has ids; the mixture's step runs the supernet in evaluation mode; and
the budget. AutoDim has no budget: it takes the most probable candidate of each field. Under a budget, a column's score
is the probability that its field is wider than the columns before it. Fields therefore grow from candidate to candidate
in order of decreasing probability, each from its smallest, until the budget is spent. Only the last columns may end
between two candidates.
"""

from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field, field_validator
from torch import Tensor, nn

from fieldwise.core.budget import Budget
from fieldwise.core.mask import Mask
from fieldwise.core.schema import Layout
from fieldwise.core.select import select
from fieldwise.core.watcher import Watcher
from fieldwise.data.batches import Batch
from fieldwise.models.model import Model, OwnModel
from fieldwise.processes.ranks import current
from fieldwise.processes.streams import shared
from fieldwise.searches.search import Restarting, SearchResult, check_smallest, finish
from fieldwise.searches.trained import AdamSearch
from fieldwise.tables.state import Tensors, named, optimizer_tensors, restore_optimizer, under
from fieldwise.train.evaluate import evaluate
from fieldwise.train.loop import fit
from fieldwise.train.loss import part_of_loss
from fieldwise.train.plan import TrainingPlan
from fieldwise.train.randomness import randomness
from fieldwise.train.task import Task


class AutoDim(Restarting, AdamSearch):
    """Learns the probability of each candidate width for each field."""

    own_network: ClassVar[str] = "trains a supernet that mixes tables of several widths, in place of your model"

    candidates: tuple[int, ...] = Field((2, 4, 8), min_length=1)
    """Widths to choose from, ascending, each at least 1."""
    eta: float = Field(1e-3, gt=0)
    """Learning rate of the mixture (Adam), above 0."""
    cooling: float = Field(5e-5, ge=0)
    """Decrease of the temperature per step, from 1, at least 0."""
    coldest: float = Field(0.01, gt=0, le=1)
    """Lowest temperature, in (0, 1]."""

    @field_validator("candidates")
    @classmethod
    def _ascend(cls, values: tuple[int, ...]) -> tuple[int, ...]:
        if list(values) != sorted(set(values)) or values[0] < 1:
            raise ValueError("candidates must be ascending widths of at least 1")
        return values

    def run(self, task: Task, budget: Budget, folder: Path | None, watcher: Watcher | None) -> SearchResult:
        """Train the supernet, then grow fields by the learned probabilities."""
        widths = candidate_widths(task.layout, self.candidates)
        check_smallest("autodim", budget, task.layout, tuple(int(w) for w in widths[:, 0]), task.linear)
        live = widths[:, 0] > 0  # not those of fields that were left out
        with randomness(task.seed, "supernet"):
            net = Supernet(task.model, task.layout, widths[live], self.candidates[-1], task.linear)
        net.to(task.torch_device).body.start_at(task.click_rate)
        mixture = Mixture(self, task, net, widths[live])
        plan = TrainingPlan(
            stage="search",
            forward=lambda ids: net(ids, mixture.draw()),
            evaluate=lambda: evaluate(net, task.valid, mixture.for_evaluation()),
            stop=lambda _: False,
            keep_best=False,
            valid_step=mixture.step,
            beside=mixture,
        )
        history = fit(net, task, self.training(), plan, folder, watcher)
        chances = np.zeros(widths.shape)
        chances[live] = torch.softmax(mixture.logits().detach().double(), 1).cpu().numpy()
        mask = grow(task.layout, widths, chances, budget, task.linear)
        return finish(
            task,
            budget,
            mask,
            self.narrow_model(task, mask),
            history=history,
            steps=mixture.steps,
            evaluated_auc=history[-1].auc,
            raw_live=int(widths[np.arange(len(widths)), chances.argmax(1)].sum()),
        )


def candidate_widths(layout: Layout, candidates: tuple[int, ...]) -> NDArray[np.int64]:
    """The width of each candidate of each field, (F, N), 0 if it is wider than the field's full width.

    A field narrower than the smallest candidate has its full width there.
    """
    full = np.asarray(layout.widths)[:, None]
    widths = np.where(np.asarray(candidates) <= full, candidates, 0)
    widths[:, 0] = np.minimum(full[:, 0], candidates[0])
    return widths


def grow(
    full: Layout,
    widths: NDArray[np.int64],
    chances: NDArray[np.float64],
    budget: Budget,
    linear: Layout | None = None,
) -> Mask:
    """The first columns of every field, in order of decreasing probability that the field is that wide.

    First-order weights that the budget counts are all kept.
    """
    reach = Layout(full.schema, budget.aligned(full, tuple(int(w) for w in widths.max(1))))
    place = np.concatenate([np.arange(width) for width in reach.widths])
    wider = widths[reach.owners] > place[:, None]  # (S, N)
    scores = (chances[reach.owners] * wider).sum(1)
    scores[place < widths[reach.owners, 0]] = 2.0  # the smallest candidate is always kept
    most, first = int(budget.costs(reach, linear).sum()), budget.counted(linear)
    bound = replace(budget, amount=min(budget.limit(full, linear), most), share=False)
    found = select([*scores, *[3.0] * (first.columns if first else 0)], reach, bound, linear)
    return Mask(full, found.kept, found.first_order)


class Supernet(nn.Module):
    """Shared tables of the largest width; each candidate maps its first columns to that width and normalizes."""

    def __init__(
        self, model: Model, layout: Layout, widths: NDArray[np.int64], common: int, linear: Layout | None = None
    ) -> None:
        super().__init__()
        assert isinstance(model, OwnModel)
        fields, count = widths.shape  # the fields with columns
        wide = Layout(layout.schema, tuple(common if w else 0 for w in layout.widths))
        self.body = model.build(wide if layout.shared is None else wide.sharing(), linear)
        bound = 1 / torch.from_numpy(np.sqrt(np.maximum(widths, 1)))[:, :, None, None]
        start = (torch.rand(fields, count, common, common) * 2 - 1) * bound
        self.maps = nn.Parameter(start.float())
        used = torch.arange(common) < torch.from_numpy(widths)[:, :, None]  # (F, N, D)
        self.register_buffer("used", used[..., None].float(), persistent=False)
        self.norm = nn.BatchNorm1d(fields * count * common, affine=False)

    def forward(self, ids: Tensor, chances: Tensor) -> Tensor:
        """Logits (B,) of ids (B, F), with the candidates mixed by probabilities (F, N)."""
        return self.body.logits(ids, self.mix(self.body.embedding(ids), chances))

    def mix(self, v: Tensor, chances: Tensor) -> Tensor:
        """The embedding of the shared tables, (B, F * D), as a mixture of the candidates."""
        fields, count, common, _ = self.maps.shape
        x = v.unflatten(1, (fields, common))
        each = torch.einsum("bfd,fnde->bfne", x, self.maps * self.get_buffer("used"))
        each = self.norm(each.flatten(1)).unflatten(1, (fields, count, common))
        return torch.einsum("bfne,fn->bfe", each, chances).flatten(1)


class Mixture:
    """Logits theta of the candidates' probabilities, updated by the validation loss."""

    def __init__(self, settings: AutoDim, task: Task, net: Supernet, widths: NDArray[np.int64]) -> None:
        self._settings, self._task, self._net = settings, task, net
        self._allowed = torch.from_numpy(widths > 0).to(task.torch_device)
        self.theta = torch.zeros(widths.shape, device=task.torch_device, requires_grad=True)
        self._adam = torch.optim.Adam([self.theta], lr=settings.eta, fused=True)
        self.steps = 0

    @property
    def temperature(self) -> float:
        """Decreases with the steps, so that the mixture becomes one-hot."""
        return max(self._settings.coldest, 1 - self._settings.cooling * self.steps)

    def logits(self) -> Tensor:
        """Log probabilities of the candidates that each field may use, (F, N)."""
        return torch.log_softmax(self.theta.masked_fill(~self._allowed, -torch.inf), 1)

    def draw(self) -> Tensor:
        """Probabilities with new Gumbel noise, (F, N), differentiable by theta."""
        with shared():
            uniform = torch.rand(self.theta.shape).clamp(1e-10, 1 - 1e-7).to(self.theta.device)
        return torch.softmax((self.logits() - torch.log(-torch.log(uniform))) / self.temperature, 1)

    def for_evaluation(self) -> Tensor:
        """Probabilities without noise, for an evaluation."""
        return torch.softmax(self.logits().detach() / self.temperature, 1)

    def step(self, batch: Batch) -> None:
        """One step of theta on a validation batch. Weights get no gradient, and batch statistics do not change."""
        self._net.eval()
        loss = part_of_loss(self._net(batch.ids, self.draw()), batch)
        (self.theta.grad,) = torch.autograd.grad(loss, self.theta)
        current().add([self.theta.grad])
        self._net.train()
        self._adam.step()
        self.theta.grad = None
        self.steps += 1

    def tensors(self) -> Tensors:
        """State for a checkpoint, in addition to the supernet."""
        state = {"theta": self.theta.detach(), "steps": torch.tensor(self.steps)}
        return state | named("adam", optimizer_tensors(self._adam))

    def restore(self, tensors: Tensors) -> None:
        """Restore a checkpoint."""
        with torch.no_grad():
            self.theta.copy_(tensors["theta"])
        self.steps = int(tensors["steps"])
        restore_optimizer(self._adam, under("adam", tensors))
