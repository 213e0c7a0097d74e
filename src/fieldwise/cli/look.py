"""The commands that show: a run, a dataset, and the names to choose from."""

import ast
import time
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer
from rich.console import RenderableType
from rich.table import Table

from fieldwise.cli.console import describe_dataset, describe_model
from fieldwise.reports.progress import new_console


class Format(StrEnum):
    """Formats of a report."""

    html = "html"
    md = "md"
    png = "png"


def report(
    out: Annotated[Path, typer.Argument(help="The folder of a run or of a comparison.")],
    format_: Annotated[
        Format | None, typer.Option("--format", help="One format; default: the page, and the tables on the terminal.")
    ] = None,
    against: Annotated[
        Path | None, typer.Option(help="Another run, whose pretrained columns are compared with this one's.")
    ] = None,
) -> None:
    """Write report-DATA.html of a run or comparison, and print its tables; or write it as md or as png figures."""
    from fieldwise.pipeline.report import report as write_report

    console = new_console(stderr=True)
    written = write_report(out, format_.value if format_ else None, against)
    for notice in written.notices:
        console.print(f"fieldwise: {notice}", soft_wrap=True)
    if written.paths[0].suffix == ".md":
        typer.echo(written.paths[0].read_text(encoding="utf-8"))
    for path in written.paths:
        typer.echo(f"Report: {path}")


def watch(
    out: Annotated[Path, typer.Argument(help="The run folder.")],
    every: Annotated[float, typer.Option(min=0.1, help="Seconds between updates.")] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Show the current state, and exit.")] = False,
) -> None:
    """Watch a running search: live columns against the target, validation AUC, widths per field.

    Ends when the run ends, or when no process works on it.
    """
    from rich.live import Live

    from fieldwise.core.errors import RunError
    from fieldwise.core.lock import holder
    from fieldwise.reports.run import journal
    from fieldwise.reports.run.watch import abandoned, frame

    if not out.is_dir():
        raise RunError(f"'{out}' is no run folder. Name the --out folder of a running `fieldwise run`.")
    console = new_console()

    def picture() -> RenderableType:
        return frame(journal.read_metrics(out), rows=max(5, console.height - 12), width=console.width)

    def at_work() -> bool:
        return not journal.finished(out) and holder(out) is not None

    if once:
        console.print(picture())
    else:
        with Live(picture(), console=console, auto_refresh=False) as live:
            while at_work():
                time.sleep(every)
                live.update(picture(), refresh=True)
    if not journal.finished(out) and holder(out) is None:
        console.print(abandoned(out, journal.read_metrics(out)), soft_wrap=True)


def describe(folder: Annotated[Path, typer.Argument(help="A dataset folder, or a model folder.")]) -> None:
    """Show a dataset's fields and splits, or a model's fields and its bytes by part."""
    from fieldwise.data.store import Dataset
    from fieldwise.exports.info import INFO

    if (folder / INFO).exists():
        describe_model(new_console(), folder)
    else:
        describe_dataset(new_console(), Dataset.open(folder))


def list_() -> None:
    """List the sources, models, gates, searches and presets."""
    from fieldwise.data import SOURCES
    from fieldwise.gates import GATES
    from fieldwise.models import MODELS
    from fieldwise.presets import PRESETS, text_of
    from fieldwise.searches import SEARCHES

    table = Table("kind", "name", "what it is", box=None)
    for kind, names in {"source": SOURCES, "model": MODELS, "gate": GATES, "search": SEARCHES}.items():
        for name, path in names.items():
            # the class of a gated search is made from its gate's, so it has no source of its own to read
            table.add_row(kind, name, _summary(GATES.get(name, path) if kind == "search" else path))
    for name in PRESETS:
        table.add_row("preset", name, text_of(name).splitlines()[0].removeprefix("# "))
    new_console().print(table)


def _summary(path: str) -> str:
    """The first line of a class's docstring, read without importing its module."""
    module, _, name = path.partition(":")
    spec = find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    tree = ast.parse(Path(spec.origin).read_text(encoding="utf-8"))
    found = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name)
    return (ast.get_docstring(found) or "").splitlines()[0]
