"""Writes the reference pages of the documentation site: `python scripts/reference.py FOLDER`.

The public names come from `fieldwise.__all__` and from the tables of sources, gates, models and searches, so that the
pages are complete. mkdocstrings adds signatures and docstrings when the site is built.
"""

import ast
import inspect
import json
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

import typer
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

import fieldwise
from fieldwise.cli.app import app
from fieldwise.comparison.settings import Compare
from fieldwise.core.registry import resolve
from fieldwise.data import SOURCES
from fieldwise.data.engines import ENGINES
from fieldwise.data.split import SPLIT_RULES as SPLITS
from fieldwise.gates import GATES
from fieldwise.models import MODELS
from fieldwise.pipeline.settings import Run
from fieldwise.searches import SEARCHES
from fieldwise.train.pretraining import Pretrain
from fieldwise.train.retraining import Retrain

FOLDERS = {"data": SOURCES, "gates": GATES, "models": MODELS, "searches": SEARCHES}
INTRODUCTION = (
    "The key `name` of the table `[{table}]` chooses one of these; in Python, write `fw.{folder}.{cls}(...)`."
)
SINGLE: dict[str, type[BaseModel]] = {"run": Run, "pretrain": Pretrain, "retrain": Retrain, "compare": Compare}
TABLES = {"data": "data", "models": "model", "searches": "search"}


def main(out: Path) -> None:
    """Writes every page into a new folder."""
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    pages = {"python": python_page(), "settings": settings_page(), "command-line": command_page()}
    pages |= {folder: folder_page(folder) for folder in FOLDERS}
    for name, lines in pages.items():
        (out / f"{name}.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def python_page() -> Iterator[str]:
    """The names of `fieldwise` itself: packages, functions, classes, and anything else."""
    values = {name: value_of(fieldwise, name) for name in fieldwise.__all__}
    yield from ("# Python", "", "`import fieldwise as fw` gives these names; they are imported when first used.", "")
    for folder in (name for name, value in values.items() if inspect.ismodule(value)):
        link = f"[fw.{folder}]({folder}.md)" if folder in FOLDERS else f"`fw.{folder}`"
        yield f"- {link}: {first_line(values[folder])}"
    kinds: dict[str, Callable[[Any], bool]] = {
        "Functions": inspect.isroutine,
        "Classes": inspect.isclass,
        "Others": lambda value: not (inspect.isroutine(value) or inspect.isclass(value) or inspect.ismodule(value)),
    }
    for title, belongs in kinds.items():
        names = [name for name, value in values.items() if belongs(value)]
        if names:
            yield from ("", f"## {title}", "")
        for name in names:
            yield from documented(fieldwise, name, f"fw.{name}")


def folder_page(folder: str) -> Iterator[str]:
    """The names of one folder: first those that settings can name, then their base classes and parts."""
    module, names = import_module(f"fieldwise.{folder}"), FOLDERS[folder]
    classes = {name: resolve(folder, names, name) for name in names}
    yield from (f"# {folder.capitalize()}", "", inspect.getdoc(module) or "", "")
    if folder in TABLES:
        some = next(iter(classes.values())).__name__
        yield from (INTRODUCTION.format(table=TABLES[folder], folder=folder, cls=some), "")
    for name, cls in classes.items():
        yield from (f"## {name}", "")
        yield from (f"`fw.{folder}.{cls.__name__}`", "", inspect.getdoc(cls) or "", "", *settings_table(cls))
    others = [name for name in exported(module) if value_of(module, name) not in classes.values()]
    if others:
        yield from ("## Also in Python", "")
    for name in others:
        yield from documented(module, name, f"fw.{folder}.{name}")


def settings_page() -> Iterator[str]:
    """The tables of a settings file that are not on another page."""
    yield from (
        "# Settings files",
        "",
        "A settings file is TOML; every key is also a flag, `--set table.key=value`.",
        "",
    )
    yield "`[data]` is on the page [Data](data.md), `[model]` on [Models](models.md), `[search]` on"
    yield "[Searches](searches.md)."
    yield "For completion and checks in an editor, `fieldwise schema -o fieldwise.schema.json` writes the JSON schema;"
    yield "with the extension Even Better TOML, a file then begins with `#:schema fieldwise.schema.json`."
    for table, cls in SINGLE.items():
        yield from ("", f"## [{table}]", "", inspect.getdoc(cls) or "", "", *settings_table(cls))
    for table, names in {"split": SPLITS, "engine": ENGINES}.items():
        yield from ("", f"## [{table}]", "", f"The key `name` chooses one of {', '.join(f'`{n}`' for n in names)}.", "")
        for name in names:
            found = resolve(table, names, name)
            yield from ("", f'### name = "{name}"', "", inspect.getdoc(found) or "", "", *settings_table(found))


def command_page() -> Iterator[str]:
    """Every command with its arguments and options."""
    yield from ("# Command line", "", "`fieldwise COMMAND --help` prints the same on a terminal.")
    group: Any = typer.main.get_command(app)
    for name, command in group.commands.items():
        words = [f"fieldwise {name}", *(metavar(p) for p in command.params if p.param_type_name == "argument")]
        yield from ("", f"## {name}", "", command.help or "", "", "```", " ".join([*words, "[OPTIONS]"]), "```", "")
        yield from ("| argument or option | meaning |", "|---|---|")
        for parameter in command.params:
            flags = parameter.opts if parameter.param_type_name == "option" else [metavar(parameter)]
            yield f"| {', '.join(f'`{flag}`' for flag in flags)} | {cell(parameter.help or '')} |"


def metavar(argument: Any) -> str:
    """An argument as a usage line shows it."""
    word = argument.metavar or argument.name.upper()
    return word if argument.required else f"[{word}]"


def documented(module: ModuleType, name: str, heading: str) -> Iterator[str]:
    """A public name of a package: settings as a table, everything else by mkdocstrings."""
    value = value_of(module, name)
    if inspect.isclass(value) and issubclass(value, BaseModel) and not inspect.isabstract(value):
        yield from (f"### {heading}", "", inspect.getdoc(value) or "", "", *settings_table(value))
    else:
        home = ".".join(homes(module).get(name, (value.__module__, name)))
        yield from (f"::: {home}", "    options:", f"      heading: {heading}", f"      toc_label: {heading}", "")


def settings_table(cls: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """One line per key; keys of inner tables are dotted."""
    rows = list(settings_rows(cls, prefix))
    yield from ("| key | default | meaning |", "|---|---|---|", *rows, "") if rows else ("It has no settings.", "")


def settings_rows(cls: type[BaseModel], prefix: str) -> Iterator[str]:
    """The lines of one class and of the classes inside it."""
    for name, field in cls.model_fields.items():
        inner = field.annotation
        if inspect.isclass(inner) and issubclass(inner, BaseModel):
            yield from settings_rows(inner, f"{prefix}{name}.")
        else:
            yield f"| `{prefix}{name}` | {default(field)} | {cell(field.description or '')}{choices(field)} |"


def default(field: FieldInfo) -> str:
    """A default as written in a settings file."""
    value = field.get_default(call_default_factory=True, validated_data={})
    if value is PydanticUndefined:
        return "required"
    return "" if value is None else f"`{cell(json.dumps(value, default=str))}`"


def choices(field: FieldInfo) -> str:
    """The allowed values of a Literal, unless the description names them."""
    values = [value for value in get_args(field.annotation) if isinstance(value, str)]
    named = all(value in (field.description or "") for value in values)
    return "" if named else f" One of {', '.join(f'`{value}`' for value in values)}."


def homes(module: ModuleType) -> dict[str, tuple[str, str]]:
    """The module and name of each re-export (`import x as x`) in a package's source."""
    nodes = [node for node in ast.walk(ast.parse(inspect.getsource(module))) if isinstance(node, ast.ImportFrom)]
    return {a.name: (node.module or "", a.name) for node in nodes for a in node.names if a.asname == a.name}


def value_of(module: ModuleType, name: str) -> Any:
    """The value of a public name, from its home module, since a submodule of the same name may hide it."""
    home, attribute = homes(module).get(name, (module.__name__, name))
    return getattr(import_module(home), attribute)


def exported(module: ModuleType) -> list[str]:
    """The public names of a package, without its tables."""
    return [name for name in getattr(module, "__all__", homes(module)) if not name.isupper() or name in homes(module)]


def first_line(value: Any) -> str:
    """The first line of a docstring."""
    return (inspect.getdoc(value) or "").partition("\n")[0]


def cell(text: str) -> str:
    """Text for one cell of a Markdown table."""
    return re.sub(r"\s+", " ", text).replace("|", "\\|")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
