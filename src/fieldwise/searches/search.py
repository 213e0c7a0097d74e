"""The interface of all searches, and the one place that builds their results."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Literal, Self

from fieldwise.core.budget import Budget, BudgetInput
from fieldwise.core.display import Shown, View
from fieldwise.core.errors import BudgetError, SettingsError
from fieldwise.core.mask import Mask
from fieldwise.core.records import Epoch, SearchSummary
from fieldwise.core.schema import Layout
from fieldwise.core.settings import Settings
from fieldwise.core.store import MIXED, Store
from fieldwise.core.watcher import Watcher
from fieldwise.models.compact import compact
from fieldwise.models.factory import Factory
from fieldwise.models.model import CTRModel, Model
from fieldwise.searches.total import tables_budget, typed_budget
from fieldwise.searches.trace import Trace
from fieldwise.train.evaluate import evaluate
from fieldwise.train.task import Task


@dataclass(frozen=True, repr=False)
class SearchResult(Shown):
    """The mask, the compact model that retraining starts from, and the history of the search."""

    budget: Budget
    mask: Mask
    model: CTRModel
    summary: SearchSummary
    history: tuple[Epoch, ...] = ()
    traces: tuple[Trace, ...] = ()
    """One per stage of a gated search."""
    seconds: float = 0.0

    def __post_init__(self) -> None:
        if not self.budget.total and self.budget.fits is None:  # else `search` checks all bytes
            cost = int(self.budget.of(self.mask).costs(self.mask.layout, self.model.linear).sum())
            limit = self.budget.limit(self.mask.full, self.model.settings.linear(self.mask.full.schema))
            assert cost <= limit, f"{cost} is over the budget of {self.budget}"
        assert self.mask.widths == self.budget.aligned(self.mask.full, self.mask.widths), "widths are not aligned"
        assert self.model.layout == self.mask.layout, "the model is not the one that the mask selects"

    @property
    def store(self) -> Store:
        """How the budget stores the tables: `fw.Retrain(store=found.store)`; float32 unless it is one in bytes."""
        return self.budget.of(self.mask).stored

    def view(self) -> View:
        """The mask, and the validation AUC of the selected model."""
        found = self.mask.view()
        auc = f"validation AUC {self.summary.selected_auc:.4f} at the end of the search"
        title = f"SearchResult: budget {self.budget}, {auc}, {self.summary.epochs} epochs, {self.seconds:.1f} s"
        return replace(found, title=title, lines=(found.title, *found.lines))


class Search(Settings, ABC):
    """Settings of a search method; `run` searches."""

    inherits: ClassVar[tuple[str, ...]] = ()
    """Tables of a run's settings that fill the fields of the same name, unless the search sets them."""
    members: ClassVar[str | None] = None
    """The field that holds further searches by name, if there is one. A preset fills their settings too."""
    own_network: ClassVar[str] = ""
    """Why a model must be the library's own, if the search trains a network in place of it."""
    shards: ClassVar[bool] = False
    """Whether the search works with tables that are split over processes."""
    mixes: ClassVar[bool] = False
    """Whether the search chooses the fields in int8 of a mixed budget; others store it in int4."""

    @property
    def uses_pretrained(self) -> bool:
        """Whether the search needs the pretrained full model. Pretraining then counts as part of its cost."""
        return True

    def all(self) -> list["Search"]:
        """This search, or those that it runs."""
        return [self]

    def fitted(self, rows: int, clicks: float) -> Self:
        """The settings with numbers for `auto`, for this many training rows and clicks."""
        return self

    @abstractmethod
    def run(self, task: Task, budget: Budget, folder: Path | None, watcher: Watcher | None) -> SearchResult:
        """Search from the task's starting model. Resumes from the folder's checkpoint if there is one."""


class Restarting(Search, ABC):
    """A search whose paper trains the narrow model from scratch, instead of from weights of the full model."""

    start: Literal["fresh", "pretrained"] = "fresh"
    """Initial weights of the narrow model: fresh (as in the papers), or pretrained: the kept columns of the full model
    (our choice)."""

    @property
    def uses_pretrained(self) -> bool:
        """Only if the narrow model starts from pretrained columns."""
        return self.start == "pretrained"

    def full_model(self, task: Task) -> CTRModel:
        """The initial full model."""
        return task.starting_model() if self.uses_pretrained else task.new_model()

    def narrow_model(self, task: Task, mask: Mask) -> CTRModel:
        """The initial narrow model, the same for the same seed."""
        if self.uses_pretrained:
            return compact(task.starting_model(), mask)
        return task.new_model(mask)


def search(
    task: Task,
    settings: Search,
    budget: BudgetInput,
    folder: Path | None = None,
    watcher: Watcher | None = None,
) -> SearchResult:
    """Find the columns to keep within the budget, which may be text: "25%", "28 columns", "512 KiB".

    Most searches start from pretrained weights: pass `task.starting_from(fw.pretrain(task))`.
    """
    if not isinstance(settings, Search):
        raise SettingsError(
            f"[search] got {settings!r:.80}. Allowed: settings of a search, such as fw.searches.HAM(). Call the class."
        )
    if settings.uses_pretrained and task.start is None:
        raise SettingsError(
            f"[search] {type(settings).__name__} needs pretrained weights, and this task has no model to start from. "
            "Allowed: a task with a starting model. Pass task.starting_from(fw.pretrain(task))."
        )
    budget = typed_budget(task.model, task.schema, Budget.parse(budget))
    check_network(settings, task.model)
    bound = task.bound(tables_budget(task.model, task.schema, budget))  # raises before any work if it cannot be met
    if bound.store == MIXED and not settings.mixes:
        bound = bound.fixed(task.layout, task.linear).unmixed().within(task.layout, task.linear)
    found = settings.fitted(*task.counts).run(task, bound, folder, watcher)
    assert bound.fits is None or bound.fits(found.mask), f"over the budget of {budget}"
    if not task.left_out:
        return replace(found, budget=budget)
    full, before = task.model.layout(task.schema), Mask.all(task.layout)
    traces = tuple(trace.among(before.on(full)) for trace in found.traces)
    return replace(found, budget=budget, mask=found.mask.on(full), traces=traces)


def check_network(settings: Search, model: Model) -> None:
    """Refuse a search that trains a network of its own in place of a factory's model."""
    for inner in settings.all() if isinstance(model, Factory) else []:
        if not inner.own_network:
            continue
        raise SettingsError(
            f"[search] {type(inner).__name__} {inner.own_network}: it needs a model of the library, got a "
            "factory's. Choose a gate (ham, sam, sam-sigmoid, sam-gs, ham-p), or elimination, sseds, rounds, race, "
            "magnitude, mde, uniform, random."
        )


def finish(
    task: Task,
    budget: Budget,
    mask: Mask,
    model: CTRModel,
    *,
    start: CTRModel | None = None,
    history: Sequence[Epoch] = (),
    seconds: float = 0.0,
    traces: tuple[Trace, ...] = (),
    steps: int = 0,
    evaluated_auc: float | None = None,
    raw_live: int | None = None,
    reactivations: int = 0,
    nonzeros: int | None = None,
    dense: int | None = None,
) -> SearchResult:
    """The result of a search: `model` is the compact model, or the full model, which `mask` then slices.

    Retraining starts from the kept columns of `start`, a full model, or else from those of `model`.
    `history` holds all epochs of all trainings, `seconds` the time spent outside of them. The other keywords are those
    of `SearchSummary`.
    """
    sliced = model.layout == mask.layout and mask.linear in (None, model.linear)
    small = model if sliced else compact(model, mask)
    summary = SearchSummary(
        steps=steps,
        epochs=sum(epoch.epoch > 0 for epoch in history),  # epoch 0 is an evaluation before training
        evaluated_auc=evaluated_auc,
        selected_auc=evaluate(small, task.valid).auc,
        raw_live=raw_live,
        reactivations=reactivations,
        nonzeros=nonzeros,
        dense=dense,
    )
    total = sum(epoch.seconds for epoch in history) + seconds
    first = small if start is None else compact(start, mask).to(task.torch_device).eval()
    return SearchResult(budget, mask, first, summary, tuple(history), traces, total)


def check_smallest(
    method: str, budget: Budget, full: Layout, widths: tuple[int, ...], linear: Layout | None = None
) -> None:
    """Refuse a budget below the cost of the narrowest model that a method can return, with all first-order weights."""
    widths = budget.aligned(full, widths)
    needs, limit = int(budget.costs(Layout(full.schema, widths), linear).sum()), budget.limit(full, linear)
    if needs > limit:
        raise BudgetError(
            f"Budget of {budget} ({limit} {budget.unit}) is too small for {method}, which keeps at least widths "
            f"{', '.join(map(str, widths))}. The smallest it can meet: {needs} {budget.unit}. "
            "Choose a larger budget or another search."
        )
