"""Reads settings tables: those about rows here, so that nothing of the models is imported for them."""

from collections.abc import Mapping
from typing import Any, TypeVar, cast

from fieldwise.core.errors import SettingsError
from fieldwise.core.registry import Trusted, resolve
from fieldwise.core.settings import Settings, Values, validate
from fieldwise.data import SOURCES
from fieldwise.data.engines import ENGINES
from fieldwise.data.engines.engine import Engine
from fieldwise.data.source import Source
from fieldwise.data.split import SPLIT_RULES, SplitRule

T = TypeVar("T", bound=Settings)


class Reader:
    """Reads tables, and collects problems instead of stopping at the first.

    A table with problems gives None, which no caller sees: `parse` raises the problems.
    """

    def __init__(self, values: Mapping[str, Any], trusted: Trusted) -> None:
        self._values, self._trusted = values, trusted
        self.problems: list[str] = []

    def table(self, name: str, cls: type[T]) -> T:
        """Returns the settings of a table that has one class."""
        return self.read(name, cls, self.inner_of(name))

    def named(self, name: str, base: type[T], table: Mapping[str, str], default: str) -> T:
        """Returns the settings of a table that names its class."""
        inner = self.inner_of(name)
        unnamed, known = inner and "name" not in inner, len(self.problems)
        try:
            cls = resolve(name, table, str(inner.pop("name", default)), self._trusted)
        except SettingsError as error:
            self.problems.append(str(error))
            return cast(T, None)
        if not issubclass(cls, base):
            self.problems.append(f"[{name}] '{cls.__name__}' is no {base.__name__}. Choose from: {', '.join(table)}.")
            return cast(T, None)
        found = self.read(name, cls, inner)
        if unnamed:  # the keys may be those of another
            here = f" It has no name, so it is '{default}'; [{name}] name chooses another."
            self.problems[known:] = [problem + here * (" unknown '" in problem) for problem in self.problems[known:]]
        return found

    def inner_of(self, name: str) -> Values:
        """Returns a table; notes a problem if it is none."""
        inner = self._values.get(name, {})
        if isinstance(inner, Mapping):
            return dict(inner)
        self.problems.append(f"[{name}] must be a table, got {inner!r}. Write [{name}] and its keys below it.")
        return {}

    def read(self, name: str, cls: type[T], inner: Values) -> T:
        """Returns the settings of a class."""
        found, problems = validate(cls, inner, name, self._trusted)
        self.problems += problems
        return cast(T, found)


def source_of(values: Mapping[str, Any], reader: Reader, trusted: Trusted, prepared: bool) -> Source | None:
    """The source; a prepared dataset needs none."""
    if prepared:
        if "data" not in values:
            return None
        reader = Reader(values, trusted)  # its problems are not reported
    data = values.get("data")
    given = isinstance(data, Mapping) and "raw" in data
    return reader.named("data", Source, SOURCES, "table" if given else "planted")  # type: ignore[type-abstract]


def split_of(reader: Reader) -> SplitRule:
    """The split rule."""
    return reader.named("split", SplitRule, SPLIT_RULES, "random")


def engine_of(reader: Reader) -> Engine:
    """The engine."""
    return reader.named("engine", Engine, ENGINES, "auto")  # type: ignore[type-abstract]
