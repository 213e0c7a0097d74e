"""The commands that look: at a run, and at what there is to choose from."""

import ast
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table


def report(out: Annotated[Path, typer.Argument(help="The run folder.")]) -> None:
    """Write report.md of a run folder, and print it."""
    from fieldwise import pipeline

    pipeline.report(out)
    typer.echo((out / "report.md").read_text(encoding="utf-8"))


def list_() -> None:
    """Show the sources, models, gates and searches there are."""
    from fieldwise.data import SOURCES
    from fieldwise.gates import GATES
    from fieldwise.models import MODELS
    from fieldwise.searches import SEARCHES

    table = Table("kind", "name", "what it is", box=None)
    for kind, names in {"source": SOURCES, "model": MODELS, "gate": GATES, "search": SEARCHES}.items():
        for name, path in names.items():
            table.add_row(kind, name, _summary(path))
    Console().print(table)


def _summary(path: str) -> str:
    """The first line of a class's docstring, read without importing its module."""
    module, _, name = path.partition(":")
    spec = find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    tree = ast.parse(Path(spec.origin).read_text(encoding="utf-8"))
    found = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name)
    return (ast.get_docstring(found) or "").splitlines()[0]
