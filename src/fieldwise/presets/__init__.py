"""Presets: named settings that lie below a user's own, so that results stay what they are when defaults move."""

import tomllib
from collections.abc import Mapping
from importlib.resources import files
from typing import Any, Final

from fieldwise.core.errors import SettingsError
from fieldwise.core.registry import unknown
from fieldwise.core.settings import Values

PRESETS: Final = {"paper": "paper.toml"}
"""A settings file each; `[models.<name>]` and `[searches.<name>]` are for the model and the search of that name."""
_SEVERAL: Final = {"model": "models", "search": "searches"}


def text_of(name: str) -> str:
    """The file of a preset."""
    return files(__name__).joinpath(PRESETS[name]).read_text(encoding="utf-8")


def filled(values: Mapping[str, Any]) -> Values:
    """A run's tables, with those of the preset that they name below them; what the user says stands."""
    given = {table: inner for table, inner in values.items() if table != "preset"}
    if "preset" not in values:
        return given
    if values["preset"] not in tuple(PRESETS):
        raise SettingsError(unknown("preset", str(values["preset"]), PRESETS))
    preset = tomllib.loads(text_of(values["preset"]))
    for table, several in _SEVERAL.items():
        own, each = given.get(table, {}), preset.pop(several)
        if isinstance(own, Mapping):
            below = {**preset[table], **each.get(str(own.get("name", preset[table]["name"])), {})}
            entrants = own.get("entrants", below.get("entrants", {}))  # of a race: searches by name
            preset[table] = (
                {**below, "entrants": {name: each.get(name, {}) for name in entrants}} if entrants else below
            )
    return _over(preset, given)


def _over(below: Mapping[str, Any], above: Mapping[str, Any]) -> Values:
    """Tables laid over tables, key by key; anything else takes the place of what is below it."""
    both = {key for key, value in above.items() if isinstance(value, Mapping) and isinstance(below.get(key), Mapping)}
    return {**below, **{key: _over(below[key], value) if key in both else value for key, value in above.items()}}
