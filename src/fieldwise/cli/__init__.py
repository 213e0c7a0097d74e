"""The command line: parse, call the pipeline, show progress, map errors to exit codes.

Torch is imported by the commands that need it, when they run; starting imports none of it.
"""

import os
import sys
from collections.abc import Callable
from typing import Final, NoReturn

import typer
from rich.console import Console
from safetensors import SafetensorError

from fieldwise.cli import compare, look, schema, serve, stages
from fieldwise.core.errors import FieldwiseError

COMMANDS: Final[dict[str, Callable[..., None]]] = {
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
    add_completion=False,
    pretty_exceptions_enable=False,
)
for name, command in COMMANDS.items():
    app.command(name)(command)


def main() -> NoReturn:
    """The entry point: users' mistakes are one line and exit code 2."""
    _wait_briefly()
    sys.path.append("")  # so that settings can name a class of a file here, as `mymodel:Mine`
    try:
        app()
    except FieldwiseError as error:
        Console(stderr=True, soft_wrap=True).print(f"fieldwise: {error}", markup=False, highlight=False)
        sys.exit(2)
    except (OSError, SafetensorError) as error:
        line = f"fieldwise: {error}. A file could not be read or written; mend that and run the same command again."
        Console(stderr=True, soft_wrap=True).print(line, markup=False, highlight=False)
        sys.exit(2)
    except KeyboardInterrupt:
        Console(stderr=True).print("fieldwise: stopped. The same command goes on from the last complete epoch.")
        sys.exit(130)
    raise AssertionError("typer always exits")


def _wait_briefly() -> None:
    """Lets OpenMP's threads spin for a moment before they sleep, unless the user has said how they wait.

    Threads that only spin starve each other on a busy machine, threads that only sleep wake too late on a quiet one
    (docs/speed.md). Must be said before torch starts its threads.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
        os.environ.setdefault("GOMP_SPINCOUNT", "1000")
