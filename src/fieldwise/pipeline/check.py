"""Checks a table and writes settings to edit: every field with its kind, and why."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import tomli_w

from fieldwise.core.display import printable
from fieldwise.core.errors import SettingsError
from fieldwise.core.files import write_text
from fieldwise.core.hints import either
from fieldwise.core.registry import Trusted, name_of, resolve
from fieldwise.core.settings import Settings, Values, validate
from fieldwise.data import SOURCES
from fieldwise.data.check import check
from fieldwise.data.engines import ENGINES
from fieldwise.data.engines.engine import Engine, Progress
from fieldwise.data.kinds.check import Check, ColumnCheck
from fieldwise.data.source import Source
from fieldwise.data.split import SPLIT_RULES, RandomSplit, SplitRule

_DEFAULTS: Final = {"data": "table", "split": "random", "engine": "auto"}
_TABLES: Final[dict[str, tuple[type[Settings], dict[str, str]]]] = {
    "data": (Source, SOURCES),
    "split": (SplitRule, SPLIT_RULES),
    "engine": (Engine, ENGINES),
}


def check_tables(values: Values, trusted: Trusted, progress: Progress) -> tuple[Check, str]:
    """Checks the source that settings tables name; returns the check, and the text of a settings file to edit.

    Reads only the tables about rows, so that nothing of the models is imported.
    """
    source, split, engine = (_read(name, values.get(name, {}), trusted) for name in _TABLES)
    assert isinstance(source, Source)
    assert isinstance(split, SplitRule)
    assert isinstance(engine, Engine)
    found = check(source, split=split, engine=engine, progress=progress)
    return found, settings_text(found, source, split)


def _read(name: str, table: Any, trusted: Trusted) -> Settings:
    if not isinstance(table, dict):
        raise SettingsError(f"[{name}] must be a table, got {table!r}. Write [{name}] and its keys below it.")
    base, names = _TABLES[name]
    inner = dict(table)
    cls = resolve(name, names, str(inner.pop("name", _DEFAULTS[name])), trusted)
    if not issubclass(cls, base):
        raise SettingsError(f"[{name}] '{cls.__name__}' is no {base.__name__}. Choose from: {', '.join(names)}.")
    found, problems = validate(cls, inner, name, trusted)
    if found is None:
        raise SettingsError("\n".join(problems))
    return found


def write_settings(path: Path, text: str, overwrite: bool) -> None:
    """Writes the settings; refuses to replace a file unless told to."""
    if path.exists() and not overwrite:
        do = either("Choose another --out, or add --overwrite.", "Choose another path, or pass overwrite=True.")
        raise SettingsError(f"'{path}' exists. Allowed: a new file. {do}")
    write_text(path, text)


def settings_text(found: Check, source: Source, split: SplitRule) -> str:
    """Returns a commented settings file that runs as it is."""
    lines = [
        f"# Columns of {_comment(found.source)}, written by `fieldwise check`. Edit, then:",
        "# fieldwise run THIS_FILE --out runs/NAME",
        "",
        "[run]",
        'budgets = ["25%"]  # of the embedding parameters; also "28 columns", "27k parameters", "512 KiB"',
        "seeds = [0]",
        "",
        "[data]",
        f"name = {_value(name_of(source, SOURCES))}",
        *_data_lines(found, source),
        "",
        "[split]",
        *_split_lines(found, split),
    ]
    if hasattr(source, "ignore"):
        lines += ["", "[data.fields]", *_field_lines(found, source)]
    return "\n".join(lines) + "\n"


def _data_lines(found: Check, source: Source) -> Iterator[str]:
    given = source.model_dump(mode="json", exclude_unset=True, exclude={"fields", "ignore"}, exclude_none=True)
    for key, value in given.items():
        yield f"{key} = {_value(value)}"
    if not hasattr(source, "ignore"):
        return
    ignored = [name for name in source.ignore if name not in {column.name for column in found.columns}]
    left_out = [column for column in found.columns if _is_left_out(column)]
    if found.skipped and "bad_rows" not in given:
        yield f'# bad_rows = "skip"  # rows that cannot be read: {found.skipped:,}; fix them, or use this line'
    yield "ignore = [  # columns that are no fields"
    yield from (f"    {_value(name)}," for name in ignored)
    yield from (f"    {_value(column.name)},  # {column.kind}: {_comment(column.reason)}" for column in left_out)
    yield "]"


def _is_left_out(column: ColumnCheck) -> bool:
    """Whether a column is no field under its own name: it is useless, or only the parts of its times are fields."""
    return column.kind == "constant" or column.name not in column.fields


def _split_lines(found: Check, split: SplitRule) -> Iterator[str]:
    yield f"name = {_value(name_of(split, SPLIT_RULES))}"
    for key, value in split.model_dump(mode="json", exclude_unset=True, exclude_none=True).items():
        yield f"{key} = {_value(value)}"
    times = [column.name for column in found.columns if column.kind == "time"]
    if isinstance(split, RandomSplit) and times:
        yield "# The rows have a time: train on the earliest rows and test on the latest, as a model is used."
        yield '# name = "time"'
        yield f"# column = {_value(times[0])}"


def _field_lines(found: Check, source: Source) -> Iterator[str]:
    for column in found.columns:
        if column.kind == "constant" or not column.fields:
            continue
        yield f"# {_comment(_about(column))}"
        yield from (f"# ! {_comment(text)}" for text in column.suspects)
        for name, rule in column.rules.items():
            yield f"{_key(name)} = {_value({**rule, **_given(source, name)})}"


def _given(source: Source, name: str) -> Values:
    rule = source.fields.get(name)
    return {} if rule is None else rule.model_dump(mode="json", exclude_unset=True, exclude_none=True)


def _about(column: ColumnCheck) -> str:
    values = f"{'at least ' if column.at_least else ''}{column.cardinality:,} values, {column.nulls:.1%} null"
    most = "at most " if column.at_least else ""
    unknown = "" if column.unknown is None else f", {most}{column.unknown:.1%} unknown in validation rows"
    return f"{column.name}: {column.kind}, {values}{unknown}; {column.reason}"


def _comment(text: str) -> str:
    return printable(text)


def _key(name: str) -> str:
    return tomli_w.dumps({name: 0}).rpartition(" = ")[0]


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{_key(key)} = {_value(inner)}" for key, inner in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_value(inner) for inner in value) + "]"
    return tomli_w.dumps({"x": value}).removeprefix("x = ").rstrip("\n")
