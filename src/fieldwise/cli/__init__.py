"""The command line: parse, call the pipeline, show progress, map errors to exit codes.

Torch is imported by the commands that need it, when they run; starting imports none of it. This module imports next to
nothing, so that Ctrl-C is heard from the first moment on.
"""

import os
import sys
from signal import SIGINT
from typing import NoReturn

from fieldwise.cli.stop import Stop


def main() -> NoReturn:
    """The entry point: users' mistakes are one line and exit code 2, a signal is one line and its own code."""
    _wait_briefly()
    stop = Stop(sys.argv[1] if len(sys.argv) > 1 else "")
    stop.listen()
    try:
        _start()
    except BaseException as error:  # what libraries make of a signal that comes while they work is not told
        if isinstance(error, KeyboardInterrupt) or (isinstance(error, SystemExit) and error.code == 128 + SIGINT):
            stop.by = stop.by or SIGINT
        if stop.by is not None:
            stop.end()
        stop.forget()
        if not isinstance(error, SystemExit):
            _tell(error)
        raise
    raise AssertionError("typer always exits")


def _start() -> None:
    from fieldwise.cli.app import app

    app()


def _tell(error: BaseException) -> None:
    """Says a mistake of the user's, or of the disk's, in one line, and exits."""
    from safetensors import SafetensorError

    from fieldwise.cli.console import new_console
    from fieldwise.core.errors import FieldwiseError

    if isinstance(error, FieldwiseError):
        line = f"fieldwise: {error}"
    elif isinstance(error, OSError | SafetensorError):
        line = f"fieldwise: {error}. A file could not be read or written; fix that and run the same command again."
    else:
        return
    new_console(stderr=True).print(line, soft_wrap=True)
    sys.exit(2)


def _wait_briefly() -> None:
    """Lets OpenMP's threads spin for a moment before they sleep, unless the user has said how they wait.

    Threads that only spin starve each other on a busy machine, threads that only sleep wake too late on a quiet one
    (docs/speed.md). Must be said before torch starts its threads.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
        os.environ.setdefault("GOMP_SPINCOUNT", "1000")
