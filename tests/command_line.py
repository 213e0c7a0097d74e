"""Runs the command line in its own process, and flags that make a run take seconds."""

import subprocess
import sys
from pathlib import Path

FAST = [
    "--set", "data.rows=4000", "--set", "model.width=4", "--set", "pretrain.epochs=2", "--set", "search.epochs=2",
    "--set", "retrain.epochs=2", "--device", "cpu",
]  # fmt: skip
"""Flags of a run on planted data that takes seconds."""


def cli(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Runs `fieldwise` with these arguments, and captures what it prints."""
    command = [sys.executable, "-c", "from fieldwise.cli import main; main()", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)
