"""Options that commands share, and their conversion to settings."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from fieldwise.cli.completion import among, engines, models, presets, searches, sources
from fieldwise.core.errors import SettingsError
from fieldwise.core.registry import Trusted
from fieldwise.core.settings import Values, override, read_toml

if TYPE_CHECKING:
    from fieldwise.pipeline.settings import RunSettings

SettingsFile = Annotated[
    Path | None, typer.Argument(help="A TOML file; default: the settings.toml of --out, else the defaults.")
]
PresetName = Annotated[
    str | None,
    typer.Option("--preset", help="Named settings, which yours override; see `list`.", autocompletion=presets),
]
Out = Annotated[Path, typer.Option(help="The run folder: created, or resumed.")]
Source = Annotated[
    str | None, typer.Option(help="\\[data] name: the source of rows; see `list`.", autocompletion=sources)
]
Raw = Annotated[Path | None, typer.Option(help="\\[data] raw: the file or folder of the source.")]
Label = Annotated[str | None, typer.Option(help="\\[data] label: the click column, for the source `table`.")]
Header = Annotated[
    str | None, typer.Option(help="\\[data] header: comma-separated names of columns, for text without a header.")
]
BadRows = Annotated[
    str | None,
    typer.Option(
        help="\\[data] bad_rows: `stop` at rows that cannot be read, or `skip` them.",
        autocompletion=among("stop", "skip"),
    ),
]
EngineName = Annotated[
    str | None,
    typer.Option("--engine", help="\\[engine] name: auto, arrow, duckdb or spark.", autocompletion=engines),
]
Master = Annotated[str | None, typer.Option(help="\\[engine] master: the Spark cluster, such as spark://host:7077.")]
DatasetFolder = Annotated[Path | None, typer.Option("--dataset", help="A dataset folder of `prepare`.")]
ModelName = Annotated[
    str | None,
    typer.Option("--model", help="\\[model] name; see `list`. Or module:build, your factory.", autocompletion=models),
]
SearchName = Annotated[
    str | None, typer.Option("--search", help="\\[search] name; see `list`.", autocompletion=searches)
]
Budgets = Annotated[
    list[str] | None, typer.Option("--budget", help="Upper bound: 28, '27k parameters', '1 MiB', 25%; may be repeated.")
]
Align = Annotated[
    int | None, typer.Option(min=1, help="Widths are multiples of this; TorchRec's sharded tables need 4.")
]
Seeds = Annotated[list[int] | None, typer.Option("--seed", help="Random seed, 0 or more; may be repeated.")]
DeviceName = Annotated[
    str | None, typer.Option("--device", help="auto, cpu or cuda.", autocompletion=among("auto", "cpu", "cuda"))
]
Processes = Annotated[
    int | None,
    typer.Option(min=1, help="Processes that train together, on this machine or, with --engine spark, on its cluster."),
]
TensorBoard = Annotated[
    bool, typer.Option("--tensorboard", help="Also write TensorBoard events to the run folder (extra `tensorboard`).")
]
Profiled = Annotated[
    bool, typer.Option("--profile", help="Also write profile.md: where the seconds went, by stage and by kernel.")
]
Sets = Annotated[list[str] | None, typer.Option("--set", help="table.key=value; may be repeated.")]

HOMES: Final = {
    "source": ("data", "name"),
    "raw": ("data", "raw"),
    "label": ("data", "label"),
    "header": ("data", "header"),
    "bad_rows": ("data", "bad_rows"),
    "engine": ("engine", "name"),
    "master": ("engine", "master"),
    "dataset": ("run", "dataset"),
    "model": ("model", "name"),
    "search": ("search", "name"),
    "methods": ("compare", "methods"),
    "budgets": ("run", "budgets"),
    "seeds": ("run", "seeds"),
    "device": ("run", "device"),
}
"""The table and key that each flag sets."""
_TABLES: Final = (".csv", ".tsv", ".txt", ".jsonl", ".ndjson", ".parquet", ".pq", ".gz", ".bz2", ".zst", ".zip")
"""Endings of files that hold rows."""


def tables_of(file: Path | None, out: Path | None, sets: list[str] | None, **flags: Any) -> tuple[Values, Trusted]:
    """The tables of the settings file, else of the run folder, overridden by flags; and which classes may be imported.

    Names in the command, and in a settings file that it names, are trusted. Names in the run folder's own file are not.
    """
    remembered, trusted = out / "settings.toml" if out else None, None
    if file is None and remembered and remembered.exists():
        file = remembered
        trusted = frozenset(_words([*flags.values(), override({}, sets or [])]))
    if file is not None:
        _check_settings(file)
    values = read_toml(file) if file else {}
    for flag, value in flags.items():
        if value is not None and flag == "preset":
            values["preset"] = value
        elif value is not None:
            table, key = HOMES[flag]
            inner = values.setdefault(table, {})
            if not isinstance(inner, dict):
                raise SettingsError(f"[{table}] must be a table, got {inner!r}. Write [{table}] in '{file}'.")
            if key == "name" and inner.get("name", value) != value:
                inner.clear()  # another class: the settings of the old one do not apply
            value = value.split(",") if flag == "header" else value
            inner[key] = str(value) if isinstance(value, Path) else value
    return override(values, sets or []), trusted


def _check_settings(file: Path) -> None:
    """Refuses a table in the place of a settings file."""
    if file.suffix.lower() in _TABLES or file.is_dir():
        raise SettingsError(
            f"'{file}' is no settings file. Look at a table with `fieldwise check {file} --label NAME`, which writes "
            f"settings, or name it with --raw {file} --label NAME."
        )


def settings_of(file: Path | None, out: Path | None, sets: list[str] | None, **flags: Any) -> "RunSettings":
    """Settings from the settings file, else from the run folder, else the defaults, overridden by flags."""
    values, trusted = tables_of(file, out, sets, **flags)
    from fieldwise.pipeline.settings import RunSettings

    return RunSettings.parse(values, trusted)


def _words(value: Any) -> Iterator[str]:
    """Every string in plain values, keys included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list | tuple):
        for inner in value:
            yield from _words(inner)
        if isinstance(value, dict):
            yield from _words(list(value.values()))


def aligned(settings: "RunSettings", align: int | None) -> "RunSettings":
    """The settings with `align` set in every budget, unless it is None."""
    if align is None:
        return settings
    budgets = tuple(dict.fromkeys(replace(budget, align=align) for budget in settings.run.budgets))
    return replace(settings, run=settings.run.model_copy(update={"budgets": budgets}))
