"""Runs the command line, in this process or in one of its own, and flags that make a run take seconds."""

import io
import os
import resource
import runpy
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any
from unittest.mock import patch

from fieldwise.cli import main

FAST = [
    "--set", "data.rows=4000", "--set", "model.width=4", "--set", "pretrain.epochs=2", "--search", "ham",
    "--set", "search.epochs=2", "--set", "retrain.epochs=2", "--device", "cpu",
]  # fmt: skip
"""Flags of a run on planted data that takes seconds."""
START = [sys.executable, "-c", "from fieldwise.cli import main; main()"]
"""Starts `fieldwise` in its own process."""


def cli(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Runs `fieldwise` with these arguments in this process, and captures what it prints.

    It calls the entry point itself, so that exit codes and error lines are those of the command. A process of its own
    takes two seconds of imports more: `START` is for what needs one, such as signals and imports that must not happen.
    """
    words = ["fieldwise", *map(str, arguments)]
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    with redirect_stdout(out), redirect_stderr(err), patch.object(sys, "argv", words), patch.dict(os.environ):
        try:
            main()
        except SystemExit as stop:
            code = stop.code
    shown = [stream.buffer.getvalue().decode() for stream in (out, err)]
    assert code is None or isinstance(code, int), code
    return subprocess.CompletedProcess(words, code or 0, *shown)


def typed(command: str, folder: Path, *more: str) -> None:
    """Runs a line of a document in a folder: `fieldwise ...`, with more arguments, or `python file.py`."""
    first, *words = shlex.split(command)
    with chdir(folder):
        if first == "python":
            script(Path(words[0]).resolve())
            return
        assert first == "fieldwise", command
        done = cli(*words, *more)
    assert done.returncode == 0, f"{command}\n{done.stderr}"


def script(path: Path) -> dict[str, Any]:
    """Runs a file as `python` does, which may import those beside it; returns its global names."""
    known = set(sys.modules)
    try:
        with patch.object(sys, "path", [str(path.parent), *sys.path]), patch.object(sys, "argv", [str(path)]):
            return runpy.run_path(str(path), run_name="__main__")
    finally:
        for name in set(sys.modules) - known:
            if Path(getattr(sys.modules[name], "__file__", None) or "/").parent == path.parent:
                del sys.modules[name]


@contextmanager
def small_disk(size: int) -> Iterator[None]:
    """Lets no file of this process grow beyond a number of bytes, as on a disk that is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def processes_of(words: list[str]) -> subprocess.CompletedProcess[str]:
    """Runs a command in a process of its own, and captures what it prints."""
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=500)
