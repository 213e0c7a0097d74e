"""Race (ours): several searches, each result retrained, and the one that is best on validation rows is kept.

No search is best for every model and budget. Validation rows tell which of a few results is, at the price of retraining
each; the test rows stay unread.
"""

from pathlib import Path
from typing import Any

from pydantic import Field, ValidationInfo, field_validator

from fieldwise.core.budget import Budget
from fieldwise.core.errors import SettingsError
from fieldwise.core.registry import Trusted, resolve
from fieldwise.core.settings import Values, validate
from fieldwise.core.watcher import Watcher
from fieldwise.searches import SEARCHES
from fieldwise.searches.search import Search, SearchResult
from fieldwise.train.evaluate import evaluate
from fieldwise.train.stages import Retrain, retrain
from fieldwise.train.task import Task


class Race(Search):
    """The best of several searches, by validation AUC after retraining."""

    entrants: dict[str, Values] = Field({"rounds": {}, "ham": {}, "uniform": {}}, min_length=1)
    """Searches by name, each with its settings; of equals the first wins."""
    retrain: Retrain = Field(default_factory=Retrain)
    """How each result is trained before it is judged."""

    @field_validator("entrants")
    @classmethod
    def _known(cls, entrants: dict[str, Values], info: ValidationInfo) -> dict[str, Values]:
        """Every entrant's settings, complete; a race in a race is refused."""
        trusted = (info.context or {}).get("trusted")
        try:
            return {name: _search(name, values, trusted).values() for name, values in entrants.items()}
        except SettingsError as error:
            raise ValueError(str(error)) from error

    def run(self, task: Task, budget: Budget, folder: Path | None, watcher: Watcher | None) -> SearchResult:
        """Searches and retrains each in turn; the winner is given as its search left it, since retraining follows."""
        best: tuple[float, SearchResult] | None = None
        seconds = 0.0
        for name, values in self.entrants.items():
            home = folder / name if folder else None
            found = _search(name, values).run(task, budget, home / "search" if home else None, watcher)
            trained = retrain(task, found.model, self.retrain, home / "retrain" if home else None, watcher)
            seconds += found.seconds + trained.seconds
            reached = evaluate(trained.model, task.valid).auc
            if best is None or reached > best[0]:
                best = reached, found
        assert best is not None
        winner = best[1]
        return SearchResult(
            budget, winner.mask, winner.model, winner.summary, winner.history, winner.traces, seconds=seconds
        )


def _search(name: str, values: dict[str, Any], trusted: Trusted = None) -> Search:
    """One entrant."""
    if name == "race":
        raise SettingsError("A race cannot enter itself. Name other searches.")
    cls = resolve("search.entrants", SEARCHES, name, trusted)
    if not issubclass(cls, Search):
        raise SettingsError(f"[search.entrants] '{name}' is no Search. Choose from: {', '.join(SEARCHES)}.")
    found, problems = validate(cls, values, f"entrants.{name}", trusted)
    if found is None:
        raise SettingsError(" ".join(problems))
    return found
