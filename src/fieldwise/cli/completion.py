"""Names that the shell completes after a flag; the tables of names are imported when TAB is pressed."""

from collections.abc import Callable, Iterable


def among(*names: str) -> Callable[[str], list[str]]:
    """A completion from these names."""
    return lambda incomplete: _begin(names, incomplete)


def sources(incomplete: str) -> list[str]:
    """Sources of rows."""
    from fieldwise.data import SOURCES

    return _begin(SOURCES, incomplete)


def engines(incomplete: str) -> list[str]:
    """Engines that read rows."""
    from fieldwise.data.engines import ENGINES

    return _begin(ENGINES, incomplete)


def models(incomplete: str) -> list[str]:
    """Base models."""
    from fieldwise.models import MODELS

    return _begin(MODELS, incomplete)


def searches(incomplete: str) -> list[str]:
    """Searches."""
    from fieldwise.searches import SEARCHES

    return _begin(SEARCHES, incomplete)


def presets(incomplete: str) -> list[str]:
    """Presets."""
    from fieldwise.presets import PRESETS

    return _begin(PRESETS, incomplete)


def _begin(names: Iterable[str], incomplete: str) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]
