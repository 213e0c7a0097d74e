"""The commands for what comes after a search: predict, hand over, measure."""

from pathlib import Path
from typing import Annotated

import typer

from fieldwise.cli.console import watching

ModelFolder = Annotated[
    Path, typer.Argument(help="A model folder, such as RUN/seed-0/compact/BUDGET.", metavar="MODEL")
]


def predict(
    model: ModelFolder,
    raw: Annotated[Path, typer.Argument(help="CSV, TSV or Parquet: a file, a folder or a glob.", metavar="FILE")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The file to write: .csv, .tsv or .parquet.")],
    keep: Annotated[list[str] | None, typer.Option(help="A column to copy to the output; may be repeated.")] = None,
    header: Annotated[str | None, typer.Option(help="Column names, between commas, of text without a header.")] = None,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
) -> None:
    """Predict the clicks of raw rows, however many, with an exported model."""
    from fieldwise.exports.folder import load
    from fieldwise.exports.predict import predict as predict_file

    names = header.split(",") if header else []
    with watching() as (console, watcher):
        rows = predict_file(load(model, device), raw, out, keep or [], names, watcher.rows)
        console.print(f"{rows:,} rows predicted: {out}", markup=False, highlight=False, soft_wrap=True)
