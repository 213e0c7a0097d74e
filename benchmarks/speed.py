"""Measures fieldwise's speed by model and optimizer, and how it scales with tables, batch, fields and width.

    python benchmarks/speed.py
    python benchmarks/speed.py --only cardinality,orthogonality --rounds 5

Every case trains in a separate process, two threads, on generated rows (encoded_rows.py); a round runs all cases of a
table in sequence, so that other load affects them alike. Numbers are medians over rounds: milliseconds per step,
thousand samples per second, seconds of a whole epoch with validation and with all rows brought up to date at its end,
and the memory of training as a multiple of the tables. A table replaces its last results in the JSON file.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from against import machine
from encoded_rows import SHAPES, Shape, write

HERE: Final = Path(__file__).resolve().parent
FEW: Final = 100_000
MODELS: Final = ("fm", "deepfm", "autoint", "dcnv2")
ASLEEP: Final = {"OMP_WAIT_POLICY": "PASSIVE"}
WAITING: Final = {"as it comes": {}, "asleep": ASLEEP, "brief": {**ASLEEP, "GOMP_SPINCOUNT": "1000"}}
"""OpenMP threads spin for milliseconds, never, or for some microseconds (as the command line sets them)."""


@dataclass(frozen=True)
class Case:
    """One training to time."""

    name: str
    model: str = "dcnv2"
    shape: str = "criteo"
    rows: int = 0
    """Rows of all tables together; 0 means the shape's own."""
    fields: int = 0
    """Number of fields, from the first; 0 means all."""
    batch: int = 2048
    width: int = 16
    optimizer: str = "adam"
    regularity: str = "none"
    """Place of orthogonality: none, step or loss."""
    stage: str = "pretrain"
    """pretrain, search, or retrain of a quarter of the columns."""
    steps: int = 40
    """Steps per epoch; the first epoch is not counted."""
    same_rows: bool = False
    """Whether a batch reads as many rows as from tables of 1e5 rows in total, whatever their size."""
    waiting: str = "brief"
    """How OpenMP threads wait: a key of WAITING."""
    beside: int = 0
    """Number of busy processes running at the same time."""
    threads: int = 0
    """Threads of all steps; 0 means two, of which fieldwise uses one for small steps."""
    folder: bool = False
    """Whether checkpoints are written, and the best one is stored on disk instead of in memory; only for pretrain."""

    def cardinalities(self, rows: int = 0) -> tuple[int, ...]:
        """Returns the cardinality of every field, scaled to a total number of rows."""
        own = SHAPES[self.shape].cardinalities[: self.fields or None]
        scale = (rows or self.rows) / sum(own) if rows or self.rows else 1
        return tuple(max(16, round(c * scale)) for c in own)


TABLES: Final[dict[str, list[Case]]] = {
    "models": [
        Case(f"{model}, {optimizer}", model=model, optimizer=optimizer)
        for model in MODELS
        for optimizer in ("adam", "dense-adam", "rowwise-adagrad")
    ],
    "cardinality": [
        Case(f"{model}, {rows:.0e} rows{', same read' * same}", model=model, rows=int(rows), steps=30, same_rows=same)
        for model in ("fm", "dcnv2")
        for same in (False, True)
        for rows in (1e5, 1e6, 1e7, 3e7)
        if not (same and rows == 1e5)
    ],
    "waiting": [
        Case(f"{model}, {waiting}, beside {beside}", model=model, waiting=waiting, beside=beside, steps=10)
        for beside in (0, 2)
        for model in ("fm", "dcnv2")
        for waiting in WAITING
    ],
    "threads": [
        Case(f"{shape}, {model}, batch {batch}, {threads}", model, shape, batch=batch, threads=threads, steps=60)
        for shape, batches in (("movielens", (512, 2048, 8192)), ("criteo", (512, 2048)))
        for model in ("fm", "deepfm")
        for batch in batches
        for threads in (1, 2)
    ],
    "memory": [
        Case(f"{model}, {rows:.0e} rows", model=model, rows=int(rows), steps=10, folder=True)
        for model in ("fm", "dcnv2")
        for rows in (3e6, 1e7)
    ],
    "batch": [Case(f"batch {batch}", model="deepfm", batch=batch) for batch in (512, 2048, 8192)],
    "fields": [Case(f"{fields} fields", model="deepfm", fields=fields) for fields in (13, 26, 39)],
    "width": [Case(f"width {width}", model="deepfm", width=width) for width in (4, 8, 16, 32)],
    "orthogonality": [
        Case(f"{shape}, {model}, {place}", model=model, shape=shape, regularity=place, steps=120)
        for shape in ("movielens", "criteo")
        for model in ("fm", "dcnv2")
        for place in ("none", "step", "loss")
        if not (shape == "criteo" and place == "loss")  # takes minutes: every row of every table at every step
    ],
    "stages": [
        Case(f"{shape}, {model}, {stage}", model=model, shape=shape, stage=stage)
        for shape in ("movielens", "criteo")
        for model in MODELS
        for stage in ("pretrain", "search", "retrain")
    ],
}


def inside(case: Case) -> dict[str, float]:
    """Trains a case and returns its time and memory."""
    import numpy as np
    import torch

    import fieldwise as fw
    from fieldwise.core.registry import resolve
    from fieldwise.core.watcher import Watcher
    from fieldwise.data.store import Split
    from fieldwise.models import MODELS as NAMES
    from fieldwise.models.compact import compact
    from fieldwise.tables import threads
    from fieldwise.train.memory import forget_peak, peak_memory
    from fieldwise.train.pretraining import Pretrain
    from fieldwise.train.retraining import Retrain

    class Clock(Watcher):
        """Records the end of every step."""

        def __init__(self) -> None:
            self.ends: dict[int, list[float]] = {}

        def step(self, stage: str, epoch: int, step: int, steps: int) -> None:
            self.ends.setdefault(epoch, []).append(time.perf_counter())

    torch.set_num_threads(case.threads or 2)
    if case.threads:
        threads.SMALL = 0  # type: ignore[misc]
    cardinalities = case.cardinalities()
    with tempfile.TemporaryDirectory() as folder:
        drawn = case.cardinalities(FEW) if case.same_rows else cardinalities
        shown = write(Shape("rows", drawn, 0.3, 0), case.steps * case.batch, Path(folder))
        ids, labels = np.load(Path(folder) / "ids.npy"), np.load(Path(folder) / "labels.npy")
        ids *= np.array(cardinalities, np.int32) // np.array(drawn, np.int32)  # spread over the whole table
    schema = fw.Schema.of(**{f"f{j}": c for j, c in enumerate(cardinalities)})
    settings = resolve("model", NAMES, case.model)(width=case.width)
    few = Split(ids[: case.batch], labels[: case.batch])
    task = fw.Task(schema, Split(ids, labels), few, settings, device="cpu")
    place = {"strength": 0.0} if case.regularity == "none" else {"strength": 1e-3, "place": case.regularity}
    clock = Clock()
    forget_peak()
    before = peak_memory()
    common = {"batch": case.batch, "epochs": 3, "patience": 3, "optimizer": case.optimizer}
    if case.stage == "pretrain":
        training = Pretrain(**common, regularity=place)
        with tempfile.TemporaryDirectory() as folder:
            history = fw.pretrain(task, training, Path(folder) if case.folder else None, watcher=clock).history
    elif case.stage == "search":
        search = fw.searches.HAM(batch=case.batch, epochs=3, patience=0)
        history = list(search.run(task, fw.Budget.percent(25, "columns"), None, clock).history)  # from new weights
    else:
        quarter = fw.Mask(task.layout, tuple(tuple(range(w // 4)) for w in task.layout.widths))
        small = compact(task.new_model(), quarter)
        history = fw.retrain(task, small, Retrain(**common, distil=0), watcher=clock).history
    tables = task.layout.params + sum(cardinalities) * settings.has_first_order()
    steps = [b - a for epoch, ends in clock.ends.items() if epoch > 1 for a, b in pairwise(ends)]
    return {
        "step_s": statistics.median(steps),
        "epoch_s": min(epoch.seconds for epoch in history[2:]),
        "rows_read": shown["touched_by_2048_rows"],
        "memory": (peak_memory() - before) / (4 * tables),
    }


def measure(cases: list[Case], rounds: int) -> list[dict[str, Any]]:
    """Measures all cases, in turns, and prints one line per case."""
    found: dict[str, list[dict[str, float]]] = {case.name: [] for case in cases}
    for _ in range(rounds):
        for case in cases:
            command = [sys.executable, __file__, "--inside", json.dumps(asdict(case))]
            environment = {**os.environ, "OMP_NUM_THREADS": "2", **WAITING[case.waiting]}
            busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(case.beside)]
            done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
            for process in busy:
                process.kill()
            found[case.name].append(json.loads(done.stdout.splitlines()[-1]))
    rows = []
    for case in cases:
        middle = {key: statistics.median(one[key] for one in found[case.name]) for key in found[case.name][0]}
        speed = case.batch / middle["step_s"] / 1e3
        rows.append({"case": asdict(case), "thousand_a_second": round(speed, 1), **middle})
        print(
            f"  {case.name:32} {middle['step_s'] * 1e3:8.2f} ms per step {speed:8.1f} k/s   "
            f"epoch of {case.steps} steps {middle['epoch_s']:7.2f} s   memory {middle['memory']:5.2f} x tables   "
            f"{middle['rows_read']:.0f} rows read by 2048",
            flush=True,
        )
    return rows


def main() -> None:
    """Measures all tables, or the named ones."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(TABLES), help="tables, separated by commas")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, help="steps per epoch, for a quick run")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "speed.json", help="the JSON file")
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.inside:
        print(json.dumps(inside(Case(**json.loads(given.inside)))))
        return
    unknown = set(given.only.split(",")) - set(TABLES)
    if unknown:
        parser.error(f"no table {', '.join(sorted(unknown))}; choose from {', '.join(TABLES)}")
    result: dict[str, Any] = json.loads(given.out.read_text()) if given.out.exists() else {}
    for name in given.only.split(","):
        print(name)
        versions = {package: version(package) for package in ("fieldwise", "torch", "numpy")}
        about = {"machine": machine(), "versions": versions, "rounds": given.rounds}
        cases = [replace(case, steps=given.steps) if given.steps else case for case in TABLES[name]]
        result[name] = {**about, "cases": measure(cases, given.rounds)}
        given.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(f"written to {given.out}")


if __name__ == "__main__":
    main()
