"""The commands for serving: predict, export, benchmark."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fieldwise.cli.console import table
from fieldwise.reports.progress import new_console, watching

if TYPE_CHECKING:
    from fieldwise.models.model import Model

ModelFolder = Annotated[
    Path, typer.Argument(help="A model folder, such as RUN/seed-0/compact/BUDGET.", metavar="MODEL")
]

OwnModel = Annotated[
    str | None,
    typer.Option("--model", help="package.module:build, the factory of a model; this runs its code."),
]


def own_class(name: str | None) -> "type[Model] | None":
    """The settings class of the model that the user names, or None."""
    if name is None:
        return None
    from fieldwise.models.factory import model_named

    return model_named(name)


def predict(
    model: ModelFolder,
    raw: Annotated[
        Path, typer.Argument(help="CSV, TSV, JSON Lines or Parquet: a file, a folder or a glob.", metavar="FILE")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The file to write: .csv, .tsv or .parquet.")],
    keep: Annotated[list[str] | None, typer.Option(help="A column to copy to the output; may be repeated.")] = None,
    header: Annotated[
        str | None, typer.Option(help="Comma-separated column names, for text files without a header.")
    ] = None,
    encoding: Annotated[str, typer.Option(help="The encoding of text files, such as latin-1.")] = "utf-8",
    delimiter: Annotated[str | None, typer.Option(help="The delimiter of text files; default: found.")] = None,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    own: OwnModel = None,
) -> None:
    """Predict click probabilities of raw rows with an exported model, in constant memory."""
    from fieldwise.exports.folder import load
    from fieldwise.exports.predict import predict_file

    names = header.split(",") if header else []
    with watching() as (console, watcher):
        loaded = load(model, device, own_class(own))
        rows = predict_file(loaded, raw, out, keep or [], names, watcher.rows, encoding, delimiter)
        console.print(f"{rows:,} rows predicted: {out}", soft_wrap=True)


class Target(StrEnum):
    """Formats that a model can be exported to."""

    folder = "folder"
    onnx = "onnx"
    pt2 = "pt2"
    triton = "triton"
    torchrec = "torchrec"
    fuxictr = "fuxictr"
    deepctr = "deepctr"
    torcheasyrec = "torcheasyrec"
    json = "json"


def export(
    model: ModelFolder,
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder to write into.")],
    to: Annotated[
        Target, typer.Option(help="A model folder, a graph, a model repository, or the config of another library.")
    ] = Target.folder,
    store: Annotated[
        str | None,
        typer.Option(
            help="Type of the tables: float32, float16, int8, int4, 'int8 row', 'int4 row', or 'mixed [\"gender\"]': "
            "int4, with these fields in int8."
        ),
    ] = None,
    align: Annotated[int, typer.Option(min=1, help="Pad widths with zeros to multiples of this.")] = 1,
    own: OwnModel = None,
) -> None:
    """Export a model for serving (folder, onnx, pt2, triton), or its widths to another library."""
    from fieldwise.core.store import Store
    from fieldwise.exports.targets import export_to

    chosen = Store.parse(store) if store else None
    written, console = export_to(to, model, out, align, own_class(own), chosen), new_console()
    if written.tables:
        found = written.tables
        heads = ("field", "cardinality", "width", f"aligned to {align}")
        table(console, "Tables", heads, [(t.field, t.cardinality, t.width, t.aligned) for t in found.tables])
        line = (
            f"{found.raw:,} numbers raw, {found.aligned:,} aligned to {align}: {found.waste:.1%} of those are padding."
        )
        gone = f" Fields without a table: {', '.join(found.dropped)}." if found.dropped else ""
        console.print(line + gone, soft_wrap=True)
    for path in written.paths:
        console.print(f"Written: {path}", soft_wrap=True)


def bench_serve(
    model: ModelFolder,
    seconds: Annotated[float, typer.Option(min=0.01, help="Seconds per batch size.")] = 2.0,
    threads: Annotated[int, typer.Option(min=1, help="Threads per prediction.")] = 1,
    json: Annotated[Path | None, typer.Option(help="Also write the numbers to this file.")] = None,
    own: OwnModel = None,
) -> None:
    """Measure latency, memory and disk of the compact model against the full one, in every runtime."""
    from fieldwise.bench.serve import bench
    from fieldwise.core.files import write_json
    from fieldwise.reports.serving import HEADS, serving_rows

    console = new_console()
    with console.status("measuring") as status:
        say = lambda what: status.update(f"measuring {what}")  # noqa: E731
        found = bench(model, seconds, threads, say=say, model=own_class(own))
    title = f"Serving on {threads} core(s), ids to probabilities: sizes in MiB, p50 / p99 of a batch in ms"
    table(console, title, HEADS, serving_rows(found.to_json()))
    for line in found.missing:
        console.print(f"Not measured: {line}", soft_wrap=True)
    if json:
        write_json(json, found.to_json())
