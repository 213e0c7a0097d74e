"""Raw rows to a Dataset: sources, rules, vocabularies, split, encode, store, batches."""

from typing import TYPE_CHECKING, Final

from fieldwise.core.registry import by_class

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
_FRAME: Final = {"frame": "fieldwise.data.frame:Frame"}  # holds rows, so no settings file can name it


def __getattr__(name: str) -> type:
    """Sources by class name."""
    return by_class({**SOURCES, **_FRAME}, __name__, name)
