"""Runs one contender in its process: reads commands from stdin and answers each with one line of JSON.

    {"do": "prepare", "job": {...}}   builds the model
    {"do": "turn"}                    trains for a turn, timed
    {"do": "stop"}                    reports the peak resident memory, and ends

Output of the library goes to stderr.
"""

import json
import os
import resource
import sys
import time
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from rivals.job import Contender, Job

THREADS = 2


def main(name: str) -> None:
    """Serves one contender until the command `stop`."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    torch.set_num_threads(THREADS)
    torch.manual_seed(0)
    library = import_module(f"rivals.{name}")
    contender: Contender | None = None
    for line in sys.stdin:
        command = json.loads(line)
        if command["do"] == "prepare":
            given = command["job"]
            given["cardinalities"], given["folder"] = tuple(given["cardinalities"]), Path(given["folder"])
            contender = library.prepare(Job(**given))
            answer: dict[str, Any] = {
                "parameters": contender.parameters,
                "versions": {package: version(package) for package in (*library.PACKAGES, "torch", "numpy")},
                "notes": library.NOTES,
            }
        elif command["do"] == "turn":
            assert contender, "prepare comes first"
            answer = _turn(contender)
        else:
            answer = {"peak_gib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 2)}
        print(json.dumps(answer), file=answers, flush=True)
        if command["do"] == "stop":
            return


def _turn(contender: Contender) -> dict[str, Any]:
    started = time.perf_counter()
    contender.run()
    ended = time.perf_counter()
    loss = contender.loss()
    return {"seconds": ended - started, "closing_seconds": time.perf_counter() - ended, "loss": loss}


if __name__ == "__main__":
    main(sys.argv[1])
