"""The command line: parse, call the pipeline, show progress, map errors to exit codes.

Commands import torch only when they run, and only if they need it. This module imports almost nothing, so that Ctrl-C
is handled from the start.
"""

import os
import sys
from signal import SIGINT
from typing import NoReturn

from fieldwise.cli.many import rank, together
from fieldwise.cli.stop import Stop


def main() -> NoReturn:
    """The entry point. User errors print one line and exit with 2; a signal prints one line and exits with its code."""
    _wait_briefly()
    stop = Stop(sys.argv[1] if len(sys.argv) > 1 else "")
    if rank():
        stop.silence()
    stop.listen()
    try:
        _start()
    except BaseException as error:  # libraries turn signals into other errors, which are not shown
        if _is_elsewhere(error):
            sys.exit(2)
        if isinstance(error, KeyboardInterrupt) or (isinstance(error, SystemExit) and error.code == 128 + SIGINT):
            stop.by = stop.by or SIGINT
        if stop.by is not None:
            stop.end()
        stop.forget()
        if not isinstance(error, SystemExit):
            _print_error(error)
        raise
    raise AssertionError("typer always exits")


def _start() -> None:
    from fieldwise.cli.app import app
    from fieldwise.core.hints import in_flags

    with in_flags(), together(sys.argv[1] if len(sys.argv) > 1 else ""):
        app()


def _is_elsewhere(error: BaseException) -> bool:
    """Whether another process of the same command failed, and prints why."""
    from fieldwise.core.errors import ElsewhereError

    return isinstance(error, ElsewhereError)


def _print_error(error: BaseException) -> None:
    """Prints a user's or a disk's error in one line, and exits; returns for any other error."""
    from safetensors import SafetensorError

    from fieldwise.core.errors import FieldwiseError
    from fieldwise.reports.progress import new_console

    if isinstance(error, FieldwiseError):
        line = f"fieldwise: {error}"
    elif isinstance(error, OSError | SafetensorError):
        line = f"fieldwise: {error}. A file could not be read or written; fix that and run the same command again."
    else:
        return
    new_console(stderr=True).print(line, soft_wrap=True)
    sys.exit(2)


def _wait_briefly() -> None:
    """Lets OpenMP's threads spin briefly before they sleep, unless the user has set how they wait.

    Threads that only spin starve each other on a busy machine, and threads that only sleep wake too late on a quiet one
    (docs/speed.md). Torch reads these variables when it starts its threads.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
        os.environ.setdefault("GOMP_SPINCOUNT", "1000")
