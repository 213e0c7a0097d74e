"""Raw columns of an engine's tables."""

from collections.abc import Sequence

from fieldwise.core.errors import DataError
from fieldwise.core.registry import unknown


def column(index: int) -> str:
    """Returns the name of a raw column in an engine; numbered, since names may contain any character or case."""
    return f"c{index}"


def places_of(known: Sequence[str], names: Sequence[str], setting: str) -> list[int]:
    """Returns the indices of columns among all `known` ones; refuses an unknown name of this setting."""
    places = {name: index for index, name in enumerate(known)}
    for name in names:
        if name not in places:
            raise DataError(unknown(setting, name, known))
    return [places[name] for name in names]
