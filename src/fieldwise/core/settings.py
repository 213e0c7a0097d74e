"""Immutable, validated settings, read from files and flags; one error lists every problem."""

import tomllib
from collections.abc import Mapping, Sequence
from copy import deepcopy
from datetime import date, datetime, time
from pathlib import Path
from typing import Any, Final, TypeVar, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError

from fieldwise.core.errors import SettingsError
from fieldwise.core.hints import either
from fieldwise.core.plain_files import DEPTH, check_plain, read_text
from fieldwise.core.registry import Trusted, unknown

Values = dict[str, Any]
S = TypeVar("S", bound="Settings")
_LIMIT: Final = 2**24
"""Maximum bytes of a settings file."""


class Settings(BaseModel):
    """Base of every settings class: unknown keys are refused, values are immutable."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", validate_default=True, use_attribute_docstrings=True, allow_inf_nan=False
    )

    def values(self) -> Values:
        """The settings as plain values, as in TOML."""
        return self.model_dump(mode="json")


def check_argument(value: object, kinds: type | tuple[type, ...], name: str, example: str) -> None:
    """Refuses an argument of another type than the function takes."""
    if not isinstance(value, kinds):
        got = repr(value) if isinstance(value, str | int | float | type) else f"a {type(value).__name__}"
        raise SettingsError(f"{name} is {got:.80}. Allowed: an object such as {example}. Pass one.")


def validate(
    cls: type[S], values: Mapping[str, Any], where: str, trusted: Trusted = None
) -> tuple[S | None, list[str]]:
    """The settings and no problems, or None and one line per problem; `trusted` limits which classes are imported."""
    try:
        return cls.model_validate(values, context={"trusted": trusted}), []
    except ValidationError as error:
        problems = error.errors()
        paths = [problem["loc"] for problem in problems]
        # a problem of a list's only entry is not also a problem of the list
        inner = [p for p in problems if not any(p["loc"] == other[: len(p["loc"])] != other for other in paths)]
        return None, [_sentence(cls, dict(problem), where) for problem in inner]


def _sentence(cls: type[BaseModel], problem: Values, where: str) -> str:
    path = [str(part) for part in problem["loc"]]
    if problem["type"] == "extra_forbidden":
        for part in path[:-1]:
            if part in cls.model_fields:  # else a key of a dict, whose values have the class found before
                inner = cls.model_fields[part].annotation
                inner = get_args(inner)[-1] if get_origin(inner) is dict else inner
                cls = inner if isinstance(inner, type) and issubclass(inner, BaseModel) else cls
        return unknown(".".join([where, *path[:-1]]), path[-1], cls.model_fields)
    if problem["type"] == "missing":
        key = ".".join(path)
        return f"[{where}] {key} is missing. Set it{either(f' with --set {where}.{key}=VALUE', '')}."
    what = problem["msg"].removeprefix("Value error, ")
    return f"[{where}] {'.'.join(path)} = {problem['input']!r:.200}: {what[0].lower()}{what[1:].rstrip('.')}."


def read_toml(path: Path) -> Values:
    """The tables of a TOML file."""
    try:
        text = read_text(path, _LIMIT)
        if any(line.partition("=")[0].partition("#")[0].count(".") > DEPTH for line in text.splitlines()):
            raise ValueError(f"a key is nested more than {DEPTH} deep")  # tomllib takes memory with the square of it
        values = tomllib.loads(text)
        check_plain(values)
        return values
    except OSError as error:
        raise SettingsError(f"Cannot read settings '{path}' ({error.strerror}). Name a TOML file.") from error
    except RecursionError as error:
        raise SettingsError(
            f"Settings '{path}' are not understood: they are nested too deep. Write flat tables."
        ) from error
    except ValueError as error:  # TOMLDecodeError and UnicodeDecodeError included
        kind = "not TOML" if isinstance(error, tomllib.TOMLDecodeError | UnicodeDecodeError) else "not understood"
        raise SettingsError(f"Settings '{path}' are {kind}: {error}. Fix that line.") from error


def tables_from(given: Mapping[str, Any] | Path | str) -> Values:
    """Plain tables, from a mapping or from the path of a TOML file."""
    if isinstance(given, Mapping):
        return dict(given)
    if isinstance(given, Path | str):
        return read_toml(Path(given))
    raise SettingsError(
        f"Settings of type {type(given).__name__}. Allowed: a settings object, a dict of tables, or the path of a TOML "
        "file. Write the tables as a dict of dicts."
    )


def override(values: Values, sets: Sequence[str]) -> Values:
    """The values, overridden by `table.key=value` flags; a value is read as TOML, else as text."""
    result = deepcopy(values)
    for text in sets:
        path, equals, value = text.partition("=")
        *tables, key = path.strip().split(".")
        if not equals or not tables or not all([*tables, key]):
            raise SettingsError(f"--set '{text}' is not understood. Write --set table.key=value.")
        inner = result
        for table in tables:
            inner = inner.setdefault(table, {})
            if not isinstance(inner, dict):
                raise SettingsError(f"--set '{text}': '{table}' is a value, not a table. Remove '.{key}'.")
        try:
            inner[key] = _toml_value(value.strip())
        except (ValueError, RecursionError) as error:
            why = "it is nested too deep" if isinstance(error, RecursionError) else str(error)
            raise SettingsError(f"--set '{text:.80}' is not understood: {why}.") from error
    return result


def _toml_value(text: str) -> Any:
    try:
        found = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
    if isinstance(found, datetime | date | time):
        return text
    check_plain(found)
    return found


def differing(old: Any, new: Any, where: str = "") -> list[str]:
    """The keys whose values differ between two plain values, each as `table.key (old -> new)`."""
    if isinstance(old, dict) and isinstance(new, dict):
        keys = sorted(old.keys() | new.keys())
        return [line for key in keys for line in differing(old.get(key), new.get(key), f"{where}.{key}")]
    return [] if old == new else [f"{where.lstrip('.')} ({old!r} -> {new!r})"]
