"""Turns raw rows into a Dataset: sources, rules, vocabularies, splits, encoding, storage, batches."""

from typing import TYPE_CHECKING, Final

from fieldwise.core.registry import by_class, class_names

if TYPE_CHECKING:
    from fieldwise.data.avazu import Avazu as Avazu
    from fieldwise.data.criteo import Criteo as Criteo
    from fieldwise.data.frame import Frame as Frame
    from fieldwise.data.movielens_1m import MovieLens1M as MovieLens1M
    from fieldwise.data.planted import Planted as Planted
    from fieldwise.data.table import Table as Table

SOURCES: Final = {
    "avazu": "fieldwise.data.avazu:Avazu",
    "criteo": "fieldwise.data.criteo:Criteo",
    "movielens-1m": "fieldwise.data.movielens_1m:MovieLens1M",
    "planted": "fieldwise.data.planted:Planted",
    "table": "fieldwise.data.table:Table",
}
_FRAME: Final = {"frame": "fieldwise.data.frame:Frame"}  # contains rows, so a settings file cannot name it


def __getattr__(name: str) -> type:
    """Imports a source by its class name."""
    return by_class({**SOURCES, **_FRAME}, __name__, name)


def __dir__() -> list[str]:
    """The classes, whether imported yet or not, and their table."""
    return sorted([*class_names({**SOURCES, **_FRAME}), "SOURCES"])
