"""The command that compares searches."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from fieldwise.cli.completion import searches
from fieldwise.cli.console import table
from fieldwise.cli.options import Budgets, DatasetFolder, DeviceName, PresetName, Raw, Seeds, Sets, tables_of
from fieldwise.reports.progress import watching

Jobs = Annotated[int, typer.Option(min=1, help="Cells to run in parallel, each in its own process.")]
Minutes = Annotated[
    float | None, typer.Option(min=0, help="Start no further cell after this many minutes; the same command resumes.")
]
ClusterAddress = Annotated[
    str | None,
    typer.Option("--cluster", help="A Dask scheduler, such as tcp://host:8786, whose workers run the cells."),
]
Methods = Annotated[
    list[str] | None,
    typer.Option("--method", help="\\[compare] methods; may be repeated.", autocompletion=searches),
]


def compare(
    out: Annotated[Path, typer.Option(help="The comparison's folder: created, or resumed.")],
    settings: Annotated[
        Path | None, typer.Argument(help="A TOML file; default: the settings.toml of --out, else the defaults.")
    ] = None,
    jobs: Jobs = 1,
    cluster: ClusterAddress = None,
    minutes: Minutes = None,
    preset: PresetName = None,
    raw: Raw = None,
    dataset: DatasetFolder = None,
    method: Methods = None,
    budget: Budgets = None,
    seed: Seeds = None,
    device: DeviceName = None,
    set_: Sets = None,
) -> None:
    """Compare searches under one protocol; the same command resumes an interrupted comparison."""
    values, trusted = tables_of(
        settings, out, set_, preset=preset, raw=raw, dataset=dataset, methods=method, budgets=budget, seeds=seed,
        device=device,
    )  # fmt: skip
    from fieldwise.comparison.results import compare as compare_searches
    from fieldwise.comparison.settings import CompareSettings
    from fieldwise.core.comparison import Comparison
    from fieldwise.reports.comparison.tables import (
        FAILED_HEADS,
        SHORT_HEADS,
        failed,
        groups,
        method_rows,
        short,
        source,
        summary,
    )
    from fieldwise.reports.file_names import report_name

    def show(console: Console, found: Comparison) -> None:
        for model, bound in groups(found):
            table(console, f"{model}, {bound}", SHORT_HEADS, map(short, method_rows(found, model, bound)))
        missing = list(failed(found))
        if missing:
            table(console, "Failed", FAILED_HEADS, missing)
        left = sum(cell.state != "complete" for cell in found.cells)
        again = f" {left} cells are left: the same command resumes them." if left else ""
        page = out / f"{report_name(source(found))}.html"
        console.print(f"{summary(found)}{again} Table: {out / 'comparison.md'}. Page: {page}", soft_wrap=True)

    chosen = CompareSettings.parse(values, trusted)
    with watching() as (console, watcher):
        found = compare_searches(chosen, out, jobs, minutes, watcher, lambda line: watcher.line(line), cluster)
        show(console, found)
