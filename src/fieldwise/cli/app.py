"""Every command of the command line, by name."""

from collections.abc import Callable
from typing import Final

import typer

from fieldwise.cli import check, compare, look, schema, serve, stages

COMMANDS: Final[dict[str, Callable[..., None]]] = {
    "check": check.check,
    "prepare": stages.prepare,
    "pretrain": stages.pretrain,
    "search": stages.search,
    "retrain": stages.retrain,
    "run": stages.run,
    "compare": compare.compare,
    "predict": serve.predict,
    "export": serve.export,
    "bench-serve": serve.bench_serve,
    "describe": look.describe,
    "report": look.report,
    "watch": look.watch,
    "list": look.list_,
    "schema": schema.schema,
}

app = typer.Typer(
    name="fieldwise",
    help="Finds how wide each field's embedding should be in a CTR model, and hands back the smaller model.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
for name, command in COMMANDS.items():
    app.command(name)(command)
