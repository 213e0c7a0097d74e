"""Presets: named settings below the user's own, so that results stay reproducible when defaults change."""

import tomllib
from collections.abc import Mapping
from importlib.resources import files
from typing import Any, Final

from fieldwise.core.errors import SettingsError
from fieldwise.core.registry import unknown
from fieldwise.core.settings import Values

PRESETS: Final = {"paper": "paper.toml"}
"""One settings file per preset. `[sources.<name>]`, `[models.<name>]` and `[searches.<name>]` apply to
the source, model or search of that name."""
_SEVERAL: Final = {"model": "models", "search": "searches"}


def text_of(name: str) -> str:
    """The text of a preset's file."""
    return files(__name__).joinpath(PRESETS[name]).read_text(encoding="utf-8")


def filled(values: Mapping[str, Any], members: str | None = None) -> Values:
    """A run's tables merged over those of the preset they name; the user's values take precedence.

    `members` is the key of `[search]` that holds further searches by name, if there is one (`Search.members`).
    """
    given = {table: inner for table, inner in values.items() if table != "preset"}
    if "preset" not in values:
        return given
    if values["preset"] not in tuple(PRESETS):
        raise SettingsError(unknown("preset", str(values["preset"]), PRESETS))
    preset = tomllib.loads(text_of(values["preset"]))
    sources, every, own = preset.pop("sources"), preset.pop("data"), given.get("data")
    if isinstance(own, Mapping):
        preset["data"] = {**every, **sources.get(str(own.get("name")), {})}
    for table, several in _SEVERAL.items():
        own, each = given.get(table, {}), preset.pop(several)
        if isinstance(own, Mapping):
            name = str(own.get("name", preset[table]["name"]))
            below = {**preset[table], **each.get(name, {})} if ":" not in name else {}  # a user's own has other keys
            inner = own.get(members, below.get(members)) if table == "search" and members else None
            if members and inner and isinstance(inner, Mapping):
                below[members] = {name: each.get(name, {}) for name in inner}
            preset[table] = below
    return _over(preset, given)


def _over(below: Mapping[str, Any], above: Mapping[str, Any]) -> Values:
    """Tables merged key by key; any other value replaces the one below it."""
    both = {key for key, value in above.items() if isinstance(value, Mapping) and isinstance(below.get(key), Mapping)}
    return {**below, **{key: _over(below[key], value) if key in both else value for key, value in above.items()}}
