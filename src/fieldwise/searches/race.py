"""Race (ours): run several searches, retrain each result, and keep the one with the best validation AUC.

No search is best for every model and budget. A race compares a few results on the validation rows, at the cost of
retraining each. It never reads the test rows.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Self

from pydantic import Field, ValidationInfo, field_validator

from fieldwise.core.budget import Budget
from fieldwise.core.errors import SettingsError
from fieldwise.core.registry import Trusted, resolve
from fieldwise.core.settings import Values, validate
from fieldwise.core.watcher import Watcher
from fieldwise.searches import SEARCHES
from fieldwise.searches.search import Search, SearchResult
from fieldwise.train.evaluate import evaluate
from fieldwise.train.retraining import Retrain, retrain, stored_for
from fieldwise.train.task import Task


class Race(Search):
    """The best of several searches, by validation AUC after retraining."""

    shards = True

    inherits: ClassVar[tuple[str, ...]] = ("retrain",)
    members: ClassVar[str | None] = "entrants"
    entrants: dict[str, Values] = Field({"rounds": {}, "ham": {}, "uniform": {}}, min_length=1)
    """Searches by name, each with its settings, at least one. The first wins a tie."""
    retrain: Retrain = Field(default_factory=Retrain)
    """Training of each result before the comparison; by default the run's [retrain]."""

    @field_validator("entrants")
    @classmethod
    def _known(cls, entrants: dict[str, Values], info: ValidationInfo) -> dict[str, Values]:
        """Complete settings of every entrant; refuses a race within a race."""
        trusted = (info.context or {}).get("trusted")
        try:
            return {name: _search(name, values, trusted).values() for name, values in entrants.items()}
        except SettingsError as error:
            raise ValueError(str(error)) from error

    def all(self) -> list[Search]:
        """The searches that enter."""
        return [_search(name, values) for name, values in self.entrants.items()]

    def fitted(self, rows: int, clicks: float) -> Self:
        """The settings with numbers for `auto`, in every entrant and in the retraining."""
        entrants = {name: _search(name, values).fitted(rows, clicks).values() for name, values in self.entrants.items()}
        return self.model_copy(update={"entrants": entrants, "retrain": self.retrain.fitted(rows, clicks)})

    def run(self, task: Task, budget: Budget, folder: Path | None, watcher: Watcher | None) -> SearchResult:
        """Search and retrain each in turn. Returns the winner before its retraining, because retraining follows."""
        best: tuple[float, str, SearchResult] | None = None
        seconds = 0.0
        for name, values in self.entrants.items():
            home = folder / name if folder else None
            found = _search(name, values).run(task, budget, home / "search" if home else None, watcher)
            trained = retrain(
                task, found.model, stored_for(self.retrain, budget), home / "retrain" if home else None, watcher
            )
            seconds += found.seconds + trained.seconds
            reached = evaluate(trained.model, task.valid).auc
            if best is None or reached > best[0]:
                best = reached, name, found
        assert best is not None
        _, winner, result = best
        return replace(result, summary=result.summary.model_copy(update={"winner": winner}), seconds=seconds)


def _search(name: str, values: dict[str, Any], trusted: Trusted = None) -> Search:
    """The settings of one entrant."""
    if name == "race":
        raise SettingsError("A race cannot enter itself. Choose other searches.")
    cls = resolve("search.entrants", SEARCHES, name, trusted)
    if not issubclass(cls, Search):
        raise SettingsError(f"[search.entrants] '{name}' is not a Search. Choose from: {', '.join(SEARCHES)}.")
    found, problems = validate(cls, values, f"entrants.{name}", trusted)
    if found is None:
        raise SettingsError(" ".join(problems))
    return found
