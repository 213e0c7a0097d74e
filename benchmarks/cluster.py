"""Compares the process pool of `compare --jobs 2` with a Dask cluster of two processes on the same machine.

    python benchmarks/cluster.py --rounds 3 --out benchmarks/results/cluster.json

Both run the same small cells (planted rows, one pretraining, one epoch). Each measurement is a process of its own, in
turns: seconds until the cluster is there and until the first unit ends, seconds per further unit, and CPU seconds of
all processes. The results are the medians of the rounds.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from against import machine

WAYS: Final = ("pool", "dask")
SEEDS: Final = 8
SETTINGS: Final[dict[str, Any]] = {
    "run": {"budgets": ["8"], "seeds": list(range(SEEDS)), "device": "cpu"},
    "data": {"name": "planted", "rows": 2000},
    "model": {"name": "fm", "width": 4},
    "pretrain": {"batch": 512, "epochs": 1, "harmful": "keep"},
    "retrain": {"batch": 512, "epochs": 1},
    "compare": {"models": ["fm"], "methods": ["uniform", "random"]},
}


def measure(way: str) -> None:
    """Runs a comparison, and prints what it took as JSON."""
    from fieldwise.comparison.results import compare

    ends: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        compare(SETTINGS, Path(folder) / "out", minutes=0)  # the dataset
        began = time.perf_counter()
        if way == "pool":
            up = 0.0
            compare(SETTINGS, Path(folder) / "out", jobs=2, say=lambda _: ends.append(time.perf_counter() - began))
        else:
            from distributed import LocalCluster

            with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0", host="127.0.0.1") as cluster:
                up = time.perf_counter() - began
                address = cluster.scheduler_address
                compare(
                    SETTINGS,
                    Path(folder) / "out",
                    say=lambda _: ends.append(time.perf_counter() - began),
                    cluster=address,
                )
        closed = time.perf_counter() - began
    own, children = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    found = {
        "up_s": up,
        "first_s": ends[0],
        "unit_s": (ends[-1] - ends[0]) / (len(ends) - 1),
        "close_s": closed - ends[-1],
        "all_s": closed,
        "cpu_s": sum(used.ru_utime + used.ru_stime for used in (own, children)),
        "units": len(ends),
    }
    print(json.dumps(found))


def main() -> None:
    """Parses the arguments, measures in turns, and writes the medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--measure", choices=WAYS, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.measure:
        measure(given.measure)
        return
    rounds: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
    for _ in range(given.rounds):
        for way in WAYS:
            command = [sys.executable, __file__, "--measure", way]
            done = subprocess.run(
                command, check=True, stdout=subprocess.PIPE, env={**os.environ, "OMP_NUM_THREADS": "1"}
            )
            rounds[way].append(json.loads(done.stdout.splitlines()[-1]))
            print(way, rounds[way][-1])
    medians = {
        way: {key: round(statistics.median(each[key] for each in found), 2) for key in found[0]}
        for way, found in rounds.items()
    }
    packages = {name: version(name) for name in ("dask", "distributed", "torch")}
    result = {
        "machine": machine(),
        "versions": packages,
        "rounds": given.rounds,
        "load": os.getloadavg()[0],
        "results": medians,
    }
    print(json.dumps(result, indent=1))
    if given.out:
        given.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
