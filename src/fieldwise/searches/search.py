"""What every search takes and gives."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path

from fieldwise.core.budget import Budget
from fieldwise.core.mask import Mask
from fieldwise.core.records import Epoch, SearchSummary
from fieldwise.core.settings import Settings
from fieldwise.models.compact import compact
from fieldwise.models.model import CTRModel
from fieldwise.searches.trace import Trace
from fieldwise.train.evaluate import evaluate
from fieldwise.train.loop import Listener
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
        assert self.model.layout == self.mask.layout, "the model is not the one that the mask selects"


class Search(Settings, ABC):
    """Settings of a search method; `run` searches."""

    @abstractmethod
    def run(self, task: Task, budget: Budget, folder: Path | None, listener: Listener | None) -> SearchResult:
        """Searches from the task's starting model; goes on from the folder's checkpoint where there is one."""


def search(
    task: Task,
    settings: Search,
    budget: Budget,
    folder: Path | None = None,
    listener: Listener | None = None,
) -> SearchResult:
    """Finds the columns to keep within the budget."""
    budget.limit(task.layout)  # a budget that cannot be met is refused before any work
    return settings.run(task, budget, folder, listener)


def result_of(task: Task, model: CTRModel, mask: Mask, budget: Budget, seconds: float) -> SearchResult:
    """The result of a search that trains nothing: the mask laid over the starting model."""
    small = compact(model, mask)
    summary = SearchSummary(
        steps=0,
        epochs=0,
        evaluated_auc=None,
        selected_auc=evaluate(small, task.valid).auc,
        raw_live=None,
        reactivations=0,
    )
    return SearchResult(budget, mask, small, summary, seconds=seconds)
