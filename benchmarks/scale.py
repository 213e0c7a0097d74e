"""Memory per process, steps per second and time spent waiting, for large tables and several numbers of processes.

    python benchmarks/scale.py --rows 10_000_000 --width 16 --processes 1 2 4 --tables replicated sharded

Every process trains DCN-V2 on ten generated fields, whose ids follow a power law, with the same global batch. Memory is
the resident memory of the process with the most, after the steps and at its peak, above that before the model was
built. Waiting is the time inside messages between processes; it includes waiting for a slower process. Sharded tables
need TorchRec (docs/scale.md).
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from itertools import product
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
import torch.distributed as dist
from against import machine

from fieldwise.core.resident import forget_peak_resident, peak_resident
from fieldwise.core.schema import Schema
from fieldwise.core.watcher import Watcher
from fieldwise.data.store import Split
from fieldwise.models.dcnv2 import DCNv2
from fieldwise.processes.join import joined
from fieldwise.processes.ranks import current, splitting
from fieldwise.tables.torchrec_rows import check_installed
from fieldwise.train.evaluate import evaluate
from fieldwise.train.loop import fit
from fieldwise.train.plan import Training, TrainingPlan
from fieldwise.train.task import Task

HERE: Final = Path(__file__).resolve().parent
FIELDS: Final = 10
WARM: Final = 3
"""Steps that are not timed."""


class Clock(Watcher):
    """Notes when each step ends, and how long messages have taken until then."""

    def __init__(self) -> None:
        self.waited, self.bytes = 0.0, 0
        self.ends: list[tuple[float, float, int]] = []

    def step(self, stage: str, epoch: int, step: int, steps: int) -> None:
        """Notes the time."""
        self.ends.append((time.perf_counter(), self.waited, self.bytes))

    def timed(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """A message between processes that is counted."""

        def counted(*given: Any, **named: Any) -> Any:
            began = time.perf_counter()
            done = call(*given, **named)
            self.waited += time.perf_counter() - began
            self.bytes += sum(one.nbytes for one in given if isinstance(one, torch.Tensor))
            return done

        return counted

    def exchanged(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """An exchange between all processes that is counted, and whose end is waited for later."""

        def counted(output: torch.Tensor, input: torch.Tensor, *given: Any, **named: Any) -> Any:  # noqa: A002
            self.bytes += input.nbytes * (current().size - 1) // current().size  # about: a process keeps its own part
            work = self.timed(lambda: call(output, input, *given, **named))()
            return work if work is None else Awaited(work, self)

        return counted


class Awaited(dist.Work):
    """An exchange under way; TorchRec waits only for this type."""

    def __init__(self, work: Any, clock: Clock) -> None:
        super().__init__()
        self._wait = clock.timed(work.wait)

    def wait(self, *given: Any) -> bool:
        """Waits for its end."""
        return bool(self._wait(*given))


def task_of(rows: int, width: int, steps: int, batch: int) -> Task:
    """Ten fields with the same number of ids."""
    each, draw = rows // FIELDS, np.random.default_rng(0)
    schema = Schema.of(**{f"field_{place}": each for place in range(FIELDS)})

    def split(count: int) -> Split:
        ids = (each ** draw.random((count, FIELDS))).astype(np.int32) % each
        return Split(ids, draw.integers(0, 2, count).astype(np.uint8))

    return Task(schema, split(steps * batch), split(1000), DCNv2(width=width), seed=0, device="cpu")


def measure(given: argparse.Namespace) -> dict[str, Any]:
    """Trains some steps in this process."""
    clock = Clock()
    for name in ("all_reduce", "all_gather"):
        setattr(dist, name, clock.timed(getattr(dist, name)))
    dist.all_to_all_single = clock.exchanged(dist.all_to_all_single)
    if given.table == "sharded" and current().size > 1:
        check_installed()  # imports TorchRec, as torch is imported before anything is measured
    task = task_of(given.rows, given.width, given.steps, given.batch)
    before = resident()
    forget_peak_resident()
    model = task.new_model()
    plan = TrainingPlan(
        stage="pretrain",
        forward=model,
        evaluate=lambda: evaluate(model, task.valid),
        stop=lambda _: False,
        keep_best=False,
    )
    fit(model, task, Training(batch=given.batch, epochs=1, optimizer=given.optimizer), plan, watcher=clock)
    (start, waited, sent), (end, waited_end, sent_end) = clock.ends[WARM - 1], clock.ends[-1]
    count = len(clock.ends) - WARM
    return {
        "resident_mib": (resident() - before) / 2**20,
        "peak_mib": (peak_resident() - before) / 2**20,
        "steps_per_second": count / (end - start),
        "waiting": (waited_end - waited) / (end - start),
        "sent_kib_per_step": (sent_end - sent) / count / 2**10,
    }


def resident() -> int:
    """Resident bytes of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def work(given: argparse.Namespace) -> None:
    """One of several processes; the first prints the largest of each number, and the smallest speed."""
    with joined() if int(os.environ["WORLD_SIZE"]) > 1 else nullcontext():
        with splitting(given.rows // 2 if given.table == "sharded" else None):
            found = measure(given)
        numbers = current().stacked(torch.tensor(list(found.values()), dtype=torch.float64))
        if current().rank == 0:
            most = dict(zip(found, numbers.max(0).values.tolist(), strict=True))
            most["steps_per_second"] = float(numbers[:, list(found).index("steps_per_second")].min())
            print(json.dumps({name: round(value, 3) for name, value in most.items()}))


def main() -> None:
    """Measures every number of processes and both optimizers, and writes the JSON file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument("--batch", type=int, default=4096)
    parser.add_argument("--steps", type=int, default=23)
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--optimizers", nargs="+", default=["adam", "rowwise-adagrad"])
    parser.add_argument("--out", type=Path, default=HERE / "results" / "scale.json")
    parser.add_argument("--tables", nargs="+", default=["replicated"], choices=["replicated", "sharded"])
    parser.add_argument("--optimizer", help=argparse.SUPPRESS)
    parser.add_argument("--table", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.optimizer:
        work(given)
        return
    about, rows = machine(), []
    for tables in given.tables:
        for optimizer, count in product(given.optimizers, given.processes):
            words = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(count)]
            words += [str(HERE / "scale.py"), "--optimizer", optimizer, "--table", tables]
            words += [f"--{name}={getattr(given, name)}" for name in ("rows", "width", "batch", "steps")]
            environment = {**os.environ, "OMP_NUM_THREADS": "1"}
            done = subprocess.run(words, check=True, capture_output=True, text=True, env=environment)
            about_run = {"tables": tables, "optimizer": optimizer, "processes": count}
            rows.append({**about_run, **json.loads(done.stdout.splitlines()[-1])})
            print(rows[-1], flush=True)
            size = {
                "rows": given.rows,
                "width": given.width,
                "batch": given.batch,
                "table_mib": given.rows * given.width / 2**18,
            }
            given.out.write_text(json.dumps({"machine": about, **size, "measured": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
