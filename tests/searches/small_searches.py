"""Searches that end within a second."""

from typing import Any

from fieldwise.core.registry import resolve
from fieldwise.searches import SEARCHES
from fieldwise.searches.gated import Gated
from fieldwise.searches.search import Search
from fieldwise.searches.trained import TrainedSearch

FAST: dict[str, dict[str, Any]] = {
    "autodim": {"epochs": 2, "batch": 256, "candidates": (1, 2, 4)},
    "optembed": {"epochs": 2, "batch": 256, "evolution": {"generations": 2, "mutations": 3, "crossovers": 3}},
    "pep": {"epochs": 3, "batch": 256, "threshold": -5, "speed": 50},
    "rounds": {"rounds": 3, "batch": 256},
    "race": {"entrants": {"magnitude": {}, "uniform": {}}, "retrain": {"batch": 256, "epochs": 1}},
}
"""Settings for searches that train, to end within a second."""


def small(name: str) -> Search:
    """A search that ends within a second."""
    cls = resolve("search", SEARCHES, name)
    fast = {"epochs": 2, "batch": 256} if issubclass(cls, Gated) else FAST.get(name, {})
    found = cls(**fast)
    assert isinstance(found, Search)
    return found


TRAINED = [name for name in SEARCHES if isinstance(small(name), TrainedSearch)]
"""Searches that train the model itself, so that retraining may start from their weights."""
