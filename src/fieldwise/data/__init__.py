"""Raw rows to a Dataset: sources, vocabularies, split, encode, store, batches."""

from typing import TYPE_CHECKING, Final

from fieldwise.core.names import by_class

if TYPE_CHECKING:
    from fieldwise.data.movielens_1m import MovieLens1M as MovieLens1M
    from fieldwise.data.planted import Planted as Planted

SOURCES: Final = {
    "movielens-1m": "fieldwise.data.movielens_1m:MovieLens1M",
    "planted": "fieldwise.data.planted:Planted",
}


def __getattr__(name: str) -> type:
    """Sources by class name."""
    return by_class(SOURCES, __name__, name)
