"""The command line: parse, call the pipeline, show progress, map errors to exit codes. Torch is imported late."""

import ast
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.table import Table

from fieldwise.core.errors import FieldwiseError, SettingsError
from fieldwise.core.settings import override, read_toml

if TYPE_CHECKING:
    from fieldwise.core.records import RunRecord
    from fieldwise.run_settings import RunSettings

app = typer.Typer(
    name="fieldwise",
    help="Finds how wide each field's embedding should be in a CTR model, and hands back the smaller model.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

SettingsFile = Annotated[
    Path | None, typer.Argument(help="A TOML file; without it, that of the run folder, or the defaults.")
]
Out = Annotated[Path, typer.Option(help="The run folder: made, or gone on with.")]
Source = Annotated[str | None, typer.Option(help="[data] name: where rows come from; see `list`.")]
Raw = Annotated[Path | None, typer.Option(help="[data] raw: the source's file or folder.")]
DatasetFolder = Annotated[Path | None, typer.Option("--dataset", help="A dataset that `prepare` made.")]
ModelName = Annotated[str | None, typer.Option("--model", help="[model] name; see `list`.")]
SearchName = Annotated[str | None, typer.Option("--search", help="[search] name; see `list`.")]
Budgets = Annotated[
    list[str] | None, typer.Option("--budget", help="28, '27k parameters', '1 MiB', 25%; may be repeated.")
]
Seeds = Annotated[list[int] | None, typer.Option("--seed", help="May be repeated.")]
DeviceName = Annotated[str | None, typer.Option("--device", help="auto, cpu or cuda.")]
Sets = Annotated[list[str] | None, typer.Option("--set", help="table.key=value; may be repeated.")]


@app.command()
def prepare(
    out: Annotated[Path, typer.Option(help="The dataset folder to make.")],
    settings: SettingsFile = None,
    source: Source = None,
    raw: Raw = None,
    set_: Sets = None,
) -> None:
    """Encode raw rows into a dataset folder."""
    chosen = _settings(settings, None, source=source, raw=raw, sets=set_)
    from fieldwise import pipeline
    from fieldwise.console import watching

    with watching() as (console, watcher):
        data = pipeline.prepare(chosen, out, watcher)
        rows = ", ".join(f"{name} {count:,}" for name, count in data.info["rows"].items())
        console.print(f"{rows} rows of {len(data.schema)} fields in {out}", highlight=False, soft_wrap=True)


@app.command()
def pretrain(
    out: Out,
    settings: SettingsFile = None,
    source: Source = None,
    raw: Raw = None,
    dataset: DatasetFolder = None,
    model: ModelName = None,
    seed: Seeds = None,
    device: DeviceName = None,
    set_: Sets = None,
) -> None:
    """Train the full model, for every seed."""
    chosen = _settings(
        settings,
        out,
        source=source,
        raw=raw,
        dataset=dataset,
        model=model,
        seeds=seed,
        device=device,
        sets=set_,
    )
    _stage("pretrain", chosen, out)


@app.command()
def search(
    out: Out,
    settings: SettingsFile = None,
    search: SearchName = None,
    budget: Budgets = None,
    seed: Seeds = None,
    device: DeviceName = None,
    set_: Sets = None,
) -> None:
    """Search the widths from the pretrained model, for every budget and seed."""
    chosen = _settings(settings, out, search=search, budgets=budget, seeds=seed, device=device, sets=set_)
    _stage("search", chosen, out)


@app.command()
def retrain(
    out: Out,
    settings: SettingsFile = None,
    budget: Budgets = None,
    seed: Seeds = None,
    device: DeviceName = None,
    set_: Sets = None,
) -> None:
    """Retrain the compact models of a search, and evaluate them on the test rows."""
    chosen = _settings(settings, out, budgets=budget, seeds=seed, device=device, sets=set_)
    _stage("retrain", chosen, out)


@app.command()
def run(
    out: Out,
    settings: SettingsFile = None,
    source: Source = None,
    raw: Raw = None,
    dataset: DatasetFolder = None,
    model: ModelName = None,
    search: SearchName = None,
    budget: Budgets = None,
    seed: Seeds = None,
    device: DeviceName = None,
    set_: Sets = None,
) -> None:
    """All stages in order; the same command goes on where it was stopped."""
    chosen = _settings(
        settings, out, source=source, raw=raw, dataset=dataset, model=model, search=search,
        budgets=budget, seeds=seed, device=device, sets=set_,
    )  # fmt: skip
    from fieldwise import pipeline
    from fieldwise.console import watching

    with watching() as (console, watcher):
        records = pipeline.run(chosen, out, watcher)
        _show(console, records)
        console.print(f"Report: {out / 'report.md'}", highlight=False, soft_wrap=True)


@app.command()
def report(out: Annotated[Path, typer.Argument(help="The run folder.")]) -> None:
    """Write report.md of a run folder, and print it."""
    from fieldwise import pipeline

    pipeline.report(out)
    typer.echo((out / "report.md").read_text(encoding="utf-8"))


@app.command(name="list")
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


def main() -> NoReturn:
    """The entry point: users' mistakes are one line and exit code 2."""
    try:
        app()
    except FieldwiseError as error:
        Console(stderr=True, soft_wrap=True).print(f"fieldwise: {error}", markup=False, highlight=False)
        sys.exit(2)
    except KeyboardInterrupt:
        Console(stderr=True).print("fieldwise: stopped. The same command goes on from the last complete epoch.")
        sys.exit(130)
    raise AssertionError("typer always exits")


def _settings(file: Path | None, out: Path | None, **flags: Any) -> "RunSettings":
    """The settings file, or the run folder's, or the defaults, with flags laid over."""
    remembered = out / "settings.toml" if out else None
    if file is None and remembered and remembered.exists():
        file = remembered
    values = read_toml(file) if file else {}
    sets = flags.pop("sets") or []
    homes = {
        "source": ("data", "name"), "raw": ("data", "raw"), "dataset": ("run", "dataset"),
        "model": ("model", "name"), "search": ("search", "name"), "budgets": ("run", "budgets"),
        "seeds": ("run", "seeds"), "device": ("run", "device"),
    }  # fmt: skip
    for flag, value in flags.items():
        if value is not None:
            table, key = homes[flag]
            inner = values.setdefault(table, {})
            if not isinstance(inner, dict):
                raise SettingsError(f"[{table}] must be a table, got {inner!r}. Write [{table}] in '{file}'.")
            if key == "name" and inner.get("name", value) != value:
                inner.clear()  # another method: the old one's settings do not apply to it
            inner[key] = str(value) if isinstance(value, Path) else value
    values = override(values, sets)
    from fieldwise.run_settings import RunSettings

    return RunSettings.parse(values)


def _stage(verb: str, settings: "RunSettings", out: Path) -> None:
    from fieldwise import pipeline
    from fieldwise.console import watching

    verbs = {"pretrain": pipeline.pretrain, "search": pipeline.search, "retrain": pipeline.retrain}
    with watching() as (console, watcher):
        verbs[verb](settings, out, watcher)
        console.print(f"{verb} is complete in {out}", highlight=False, soft_wrap=True)


def _show(console: Console, records: "list[RunRecord]") -> None:
    from fieldwise.reports import markdown

    for record in records:
        _table(
            console, f"Widths, budget {record.budget}, seed {record.seed}",
            markdown.WIDTH_HEADS, markdown.widths(record),
        )  # fmt: skip
    _table(console, "Full against compact", markdown.RESULT_HEADS, markdown.results(records))
    _table(console, "Seconds per stage", markdown.SECOND_HEADS, markdown.seconds(records))


def _table(console: Console, title: str, heads: Any, rows: Any) -> None:
    table = Table(*heads, title=title, title_justify="left", box=None, padding=(0, 1, 0, 0))
    for row in rows:
        table.add_row(*(str(cell) for cell in row))
    console.print(table)
    console.print()


def _summary(path: str) -> str:
    """The first line of a class's docstring, read without importing its module."""
    module, _, name = path.partition(":")
    spec = find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    tree = ast.parse(Path(spec.origin).read_text(encoding="utf-8"))
    found = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name)
    return (ast.get_docstring(found) or "").splitlines()[0]
