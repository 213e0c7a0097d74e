"""Runs units of a benchmark in parallel processes; each appends its rows to a JSON Lines file when it ends."""

import json
import multiprocessing
import os
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any, TypeVar

U = TypeVar("U")
Rows = list[dict[str, Any]]


def read(out: Path) -> Rows:
    """The rows measured so far."""
    return [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()] if out.exists() else []


def run(
    measure: Callable[[U], Rows], units: Iterable[U], out: Path, jobs: int = 1, minutes: float = 1e9
) -> Iterator[tuple[U, Rows, int]]:
    """Yields each unit as it ends, with its rows and the number of units not started; none starts after `minutes`."""
    out.parent.mkdir(parents=True, exist_ok=True)
    os.environ["OMP_NUM_THREADS"] = "1"
    end, left = time.monotonic() + 60 * minutes, list(units)
    running: dict[Future[Rows], U] = {}
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        while True:
            while left and len(running) < jobs and time.monotonic() < end:
                unit = left.pop(0)
                running[pool.submit(measure, unit)] = unit
            if not running:
                return
            ended = next(as_completed(running))
            unit, rows = running.pop(ended), ended.result()
            with out.open("a", encoding="utf-8") as file:
                file.writelines(json.dumps(row) + "\n" for row in rows)
            yield unit, rows, len(left)
