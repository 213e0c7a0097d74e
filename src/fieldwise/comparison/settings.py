"""Everything a user can choose for a comparison: a run's tables, and the methods and models to compare."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from pydantic import Field

from fieldwise.core.errors import SettingsError
from fieldwise.core.registry import Trusted, unknown
from fieldwise.core.settings import Settings, Values, tables_from, validate
from fieldwise.data.store import Dataset
from fieldwise.models import MODELS
from fieldwise.models.model import OwnModel
from fieldwise.pipeline.settings import RunSettings
from fieldwise.searches import SEARCHES

Pair = tuple[str, str]
"""The labels of a model and a method."""
_SHARED: Final = ("run", "data", "split", "pretrain", "retrain")
_TABLES: Final = (*_SHARED, "preset", "model", "compare", "models", "methods")
_ONE_PROCESS: Final = (
    "[run] tables = 'sharded' is for one training in several processes, and each cell of a comparison uses one. Choose "
    "tables = 'replicated'."
)
_LABEL: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class Compare(Settings):
    """Methods and models to compare. A label is a name of `fieldwise list`, or its own table gives the name."""

    models: tuple[str, ...] = Field(("dcnv2",), min_length=1)
    """Labels of base models; `[models.<label>]` holds the settings of one, `[model]` those of all."""
    methods: tuple[str, ...] = Field(tuple(SEARCHES), min_length=1)
    """Labels of searches; `[methods.<label>]` holds the settings of one."""
    baseline: str = "uniform"
    """The label of the method that all others are tested against."""


@dataclass(frozen=True)
class CompareSettings:
    """The settings of a comparison, and the run settings of each model and method."""

    compare: Compare
    runs: dict[Pair, RunSettings]

    @classmethod
    def parse(cls, values: Mapping[str, Any], trusted: Trusted = None) -> "CompareSettings":
        """Settings from plain tables; one error lists every problem. `trusted`: see `RunSettings.parse`."""
        compare, problems = validate(Compare, _inner(values, "compare"), "compare")
        problems += [unknown("settings", name, _TABLES) for name in values if name not in _TABLES]
        if compare is None:
            raise SettingsError("\n".join(problems))
        problems += _labels("models", compare.models, _inner(values, "models"), MODELS)
        problems += _labels("methods", compare.methods, _inner(values, "methods"), SEARCHES)
        if compare.baseline not in compare.methods:
            problems.append(unknown("compare.baseline", compare.baseline, compare.methods))
        runs: dict[Pair, RunSettings] = {}
        if not problems:
            for model in compare.models:
                for method in compare.methods:
                    try:
                        run = runs[model, method] = RunSettings.parse(_tables(values, model, method), trusted)
                        if run.run.tables == "sharded":
                            problems.append(_ONE_PROCESS)
                    except SettingsError as error:
                        problems += _placed(str(error), model, method)
        if problems:
            raise SettingsError("\n".join(dict.fromkeys(problems)))
        return cls(compare, runs)

    @property
    def shared(self) -> RunSettings:
        """Settings of one run, for tables that all runs share; of a factory's model if there is one (`tiers_for`)."""
        return min(self.runs.values(), key=lambda run: isinstance(run.model, OwnModel))

    def fitted(self, data: Dataset) -> "CompareSettings":
        """The settings with numbers for `auto`, chosen for the dataset's training rows."""
        return replace(self, runs={pair: run.fitted(data) for pair, run in self.runs.items()})

    @classmethod
    def of(cls, given: "CompareInput") -> "CompareSettings":
        """Settings from a `CompareSettings`, which is returned unchanged, from plain tables, or from a TOML file."""
        return given if isinstance(given, CompareSettings) else cls.parse(tables_from(given))

    def values(self) -> Values:
        """Plain tables, as in a settings file; `parse` reads them back."""
        tables = self.shared.values()
        models = {model: run.values()["model"] for (model, _), run in self.runs.items()}
        methods = {method: run.values()["search"] for (_, method), run in self.runs.items()}
        shared: Values = {name: tables[name] for name in _SHARED if name in tables}
        return {"compare": self.compare.values(), **shared, "models": models, "methods": methods}


CompareInput = CompareSettings | Mapping[str, Any] | Path | str
"""Settings as Python callers may give them: the object, the tables of a settings file, or the path of a TOML file."""


def _inner(values: Mapping[str, Any], name: str) -> Values:
    inner = values.get(name, {})
    if not isinstance(inner, Mapping):
        raise SettingsError(f"[{name}] must be a table, got {inner!r}. Write [{name}] and its keys below it.")
    return dict(inner)


def _labels(kind: str, labels: tuple[str, ...], tables: Values, known: Mapping[str, str]) -> list[str]:
    """Problems of the labels of one kind and of their tables."""
    problems = [f"[compare] {kind} names '{x}' twice. Name it once." for x in labels if labels.count(x) > 1]
    for label in (*labels, *tables):
        inner = tables.get(label, {})
        if not isinstance(inner, Mapping):
            problems.append(f"[{kind}.{label}] must be a table, got {inner!r}. Write [{kind}.{label}].")
        elif label not in known and "name" not in inner:
            problems.append(unknown(f"compare.{kind}", label, known))
        elif not _LABEL.fullmatch(label):
            problems.append(
                f"[compare] {kind} '{label}': a label has only letters, digits, '.', '_' and '-'. Rename it."
            )
    return problems


def _tables(values: Mapping[str, Any], model: str, method: str) -> Values:
    """The tables of the run of one model and one method."""
    tables = {name: values[name] for name in (*_SHARED, "preset") if name in values}
    tables["model"] = {"name": model, **_inner(values, "model"), **_inner(values, "models").get(model, {})}
    tables["search"] = {"name": method, **_inner(values, "methods").get(method, {})}
    return tables


def _placed(problems: str, model: str, method: str) -> list[str]:
    """A run's problems, with the table names of a comparison's file."""
    places = {"[search": f"[methods.{method}", "[model": f"[models.{model}"}
    lines = problems.splitlines()
    for old, new in places.items():
        lines = [new + line[len(old) :] if re.match(rf"{re.escape(old)}[.\]]", line) else line for line in lines]
        lines = [line.replace(f"--set {old[1:]}.name=", f"--set {new[1:]}.name=") for line in lines]
    return lines
