"""What every search takes and gives."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from fieldwise.core.budget import Budget
from fieldwise.core.errors import BudgetError
from fieldwise.core.mask import Mask
from fieldwise.core.records import Epoch, SearchSummary
from fieldwise.core.schema import Layout
from fieldwise.core.settings import Settings
from fieldwise.core.watcher import Watcher
from fieldwise.models.compact import compact
from fieldwise.models.model import CTRModel
from fieldwise.searches.trace import Trace
from fieldwise.train.evaluate import evaluate
from fieldwise.train.randomness import randomness
from fieldwise.train.task import Task


@dataclass(frozen=True)
class SearchResult:
    """The mask, the compact model with the searched weights, and how the search went."""

    budget: Budget
    mask: Mask
    model: CTRModel
    summary: SearchSummary
    history: tuple[Epoch, ...] = ()
    traces: tuple[Trace, ...] = ()
    """One for each stage of a gated search."""
    seconds: float = 0.0

    def __post_init__(self) -> None:
        cost = int(self.budget.costs(self.mask.layout).sum())
        assert cost <= self.budget.limit(self.mask.full), f"{cost} is over the budget of {self.budget}"
        assert self.mask.widths == self.budget.aligned(self.mask.full, self.mask.widths), "widths are not aligned"
        assert self.model.layout == self.mask.layout, "the model is not the one that the mask selects"


class Search(Settings, ABC):
    """Settings of a search method; `run` searches."""

    @property
    def uses_pretrained(self) -> bool:
        """Whether the search needs the pretrained full model, so that its training is part of the search's price."""
        return True

    @abstractmethod
    def run(self, task: Task, budget: Budget, folder: Path | None, watcher: Watcher | None) -> SearchResult:
        """Searches from the task's starting model; goes on from the folder's checkpoint where there is one."""


class Restarting(Search, ABC):
    """A search whose paper trains the narrow model anew, instead of going on from searched weights."""

    start: Literal["fresh", "pretrained"] = "fresh"
    """Weights of the narrow model: fresh, as in the papers, or the kept columns of the pretrained model (ours)."""

    @property
    def uses_pretrained(self) -> bool:
        """Only where its columns are the start."""
        return self.start == "pretrained"

    def full_model(self, task: Task) -> CTRModel:
        """The full model at the start."""
        return task.starting_model() if self.uses_pretrained else task.new_model()

    def narrow_model(self, task: Task, mask: Mask) -> CTRModel:
        """The narrow model at the start, the same for the same seed."""
        if self.uses_pretrained:
            return compact(task.starting_model(), mask)
        with randomness(task.seed, "weights"):
            return task.model.build(mask.layout).to(task.torch_device)


def search(
    task: Task,
    settings: Search,
    budget: Budget,
    folder: Path | None = None,
    watcher: Watcher | None = None,
) -> SearchResult:
    """Finds the columns to keep within the budget."""
    budget.limit(task.layout)  # a budget that cannot be met is refused before any work
    return settings.run(task, budget, folder, watcher)


def result_of(task: Task, model: CTRModel, mask: Mask, budget: Budget, seconds: float) -> SearchResult:
    """The result of a search that trains nothing: the starting model, or the mask laid over it."""
    small = model if model.layout == mask.layout else compact(model, mask)
    summary = SearchSummary(
        steps=0,
        epochs=0,
        evaluated_auc=None,
        selected_auc=evaluate(small, task.valid).auc,
        raw_live=None,
        reactivations=0,
    )
    return SearchResult(budget, mask, small, summary, seconds=seconds)


def check_smallest(method: str, budget: Budget, full: Layout, widths: tuple[int, ...]) -> None:
    """Refuses a budget that the narrowest model a method can give does not fit."""
    widths = budget.aligned(full, widths)
    needs, limit = int(budget.costs(Layout(full.schema, widths)).sum()), budget.limit(full)
    if needs > limit:
        raise BudgetError(
            f"Budget of {budget} ({limit} {budget.unit}) is too small for {method}, which keeps at least widths "
            f"{', '.join(map(str, widths))}. The smallest it can meet: {needs} {budget.unit}. "
            "Choose a larger budget or another search."
        )
