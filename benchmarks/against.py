"""Compares training speed of fieldwise, fuxictr, deepctr-torch, recbole and torchrec on the same rows, in turns.

    python benchmarks/against.py --shape criteo --environments .
    python benchmarks/against.py --shape movielens --environments .

criteo: only steps, batches in memory; movielens: whole epochs, with each library's own loader. Every contender runs in
a separate process (rivals/) with the Python of its environment, and is suspended while another is timed; a round is one
turn of each. The first turn of each is not counted. benchmarks/README.md describes how to create the environments.
"""

import argparse
import json
import os
import platform
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from encoded_rows import SHAPES, Shape, write

HERE: Final = Path(__file__).resolve().parent
CONTENDERS: Final = ("fieldwise", "fuxictr", "deepctr", "recbole", "fieldwise_adagrad", "torchrec")
RIVALS: Final = ("fuxictr", "deepctr", "recbole")
"""Ratios are relative to the fastest of these."""
MODELS: Final = ("fm", "deepfm", "autoint", "dcnv2")
LACKS: Final = {"recbole": ("autoint",), **dict.fromkeys(("fieldwise_adagrad", "torchrec"), ("deepfm", "autoint"))}
BATCH: Final = 2048
THREADS: Final = "2"


class Process:
    """A contender's process, controlled by lines of JSON."""

    def __init__(self, name: str, python: str, folder: Path) -> None:
        self.name = name
        self.turns: list[dict[str, float]] = []
        self.about: dict[str, Any] = {}
        self._log = folder / f"{name}.log"
        threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), THREADS)
        self._process = subprocess.Popen(
            [python, "-m", "rivals.worker", name],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log.open("w"), text=True,
            cwd=folder, env={**os.environ, **threads, "PYTHONPATH": str(HERE)},
        )  # fmt: skip

    def ask(self, do: str, **more: Any) -> dict[str, Any]:
        """Sends a command and returns its answer."""
        assert self._process.stdin
        assert self._process.stdout
        try:
            print(json.dumps({"do": do, **more}), file=self._process.stdin, flush=True)
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise SystemExit(f"{self.name} failed:\n{self._log.read_text()[-3000:]}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def prepare(self, job: dict[str, Any]) -> None:
        """Builds the model, and suspends the process."""
        self.about = self.ask("prepare", job=job)
        self._process.send_signal(signal.SIGSTOP)

    def turn(self) -> dict[str, Any]:
        """Runs one turn; all other contenders are suspended meanwhile."""
        others_busy = busy()
        self._process.send_signal(signal.SIGCONT)
        answer = self.ask("turn")
        self._process.send_signal(signal.SIGSTOP)
        return {"others_busy": others_busy, **answer}

    def stop(self) -> None:
        """Ends the process and records its peak memory."""
        self._process.send_signal(signal.SIGCONT)
        self.about |= self.ask("stop")
        self._process.wait()

    def end(self) -> None:
        """Kills the process if it is still running, after an error."""
        self._process.kill()  # a suspended process reacts to no other signal
        self._process.wait()


def measure(names: dict[str, str], job: dict[str, Any], rounds: int) -> dict[str, Any]:
    """Measures all contenders of one model, in turns."""
    processes: list[Process] = []
    try:
        for name, python in names.items():
            folder = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=job["folder"]))
            for file in ("ids.npy", "labels.npy"):
                (folder / file).symlink_to(Path(job["folder"]) / file)
            processes.append(Process(name, python, folder))
            processes[-1].prepare({**job, "folder": str(folder)})
        for number in range(rounds + 1):
            first = number % len(processes)
            for process in processes[first:] + processes[:first]:
                process.turns.append(process.turn())
        for process in processes:
            process.stop()
    finally:
        for process in processes:
            process.end()
    return {process.name: summary(process) for process in processes}


def busy() -> float:
    """Returns the fraction of CPU time used by other processes while all contenders are suspended."""
    idle = []
    for pause in (0.3, 0.0):
        ticks = [int(tick) for tick in Path("/proc/stat").read_text().splitlines()[0].split()[1:]]
        idle.append((ticks[3] + ticks[4], sum(ticks)))
        time.sleep(pause)
    (idle_before, all_before), (idle_after, all_after) = idle
    return round(1 - (idle_after - idle_before) / max(all_after - all_before, 1), 2)


def summary(process: Process) -> dict[str, Any]:
    """Returns the results of one contender; the first turn is a warm-up, but its loss is the initial loss."""
    first, *counted = process.turns
    if not counted[-1]["loss"] < first["loss"]:
        raise SystemExit(f"{process.name}: loss {first['loss']} at first, {counted[-1]['loss']} at the end; not lower.")
    return {
        "seconds": [round(turn["seconds"], 3) for turn in counted],
        "closing_seconds": [round(turn["closing_seconds"], 3) for turn in counted],
        "others_busy": [turn["others_busy"] for turn in counted],
        "losses": [round(turn["loss"], 4) for turn in process.turns],
        **process.about,
    }


def show(model: str, results: dict[str, Any], rows: int) -> None:
    """Prints a table in thousand rows per second, and adds these to the results."""
    for result in results.values():
        speeds = [rows / seconds / 1000 for seconds in result["seconds"]]
        result["thousand_rows_a_second"] = {
            "median": round(statistics.median(speeds), 2), "min": round(min(speeds), 2), "max": round(max(speeds), 2),
        }  # fmt: skip
    best = max((results[name]["thousand_rows_a_second"]["median"] for name in RIVALS if name in results), default=None)
    print(f"\n{model:18} {'median':>8} {'min':>8} {'max':>8} {'ratio':>7} {'GiB':>6} {'parameters':>11}  loss")
    for name, result in results.items():
        speed = result["thousand_rows_a_second"]
        result["ratio"] = best and round(speed["median"] / best, 2)
        numbers = "".join(f"{speed[key]:9.1f}" for key in ("median", "min", "max"))
        ratio = f"{result['ratio']:7.2f}" if best else f"{'-':>7}"
        loss = f"{result['losses'][0]:.4f} to {result['losses'][-1]:.4f}"
        print(f"{name:18}{numbers} {ratio} {result['peak_gib']:6.2f} {result['parameters']:11,}  {loss}")
    shares = [share for result in results.values() for share in result["others_busy"]]
    print(f"CPU time of other processes: median {statistics.median(shares):.0%}, max {max(shares):.0%}", flush=True)


def environments(folder: Path, only: list[str], shape: Shape) -> dict[str, str]:
    """Returns the Python of each contender; skips contenders without an environment."""
    pythons = {}
    for name in only:
        ours, theirs = Path(sys.executable), folder.resolve() / f"{name}-venv" / "bin" / "python"
        python = ours if name.startswith("fieldwise") else theirs
        if shape.rows and name in ("fieldwise_adagrad", "torchrec"):
            print(f"{name} is skipped: it is measured only on steps")
        elif not python.exists():
            print(f"{name} is skipped: no {python}")
        else:
            pythons[name] = str(python)
    return pythons


def machine() -> dict[str, Any]:
    """Describes the machine."""
    cpu = [
        line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line
    ]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    git = ["git", "-C", str(HERE), "describe", "--always", "--dirty"]
    commit = subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip()
    return {
        "cores": os.cpu_count(), "memory_gib": round(memory, 1), "cpu": cpu[0], "system": platform.platform(),
        "python": platform.python_version(), "load_before": [round(load, 1) for load in os.getloadavg()],
        "commit": commit or "no checkout",
        "began": datetime.now(UTC).isoformat(timespec="minutes"),
    }  # fmt: skip


def main() -> None:
    """Writes rows, measures each model, and rewrites the JSON file after each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shape", choices=SHAPES, required=True)
    parser.add_argument("--environments", type=Path, default=Path(), help="folder with fuxictr-venv, deepctr-venv, ...")
    parser.add_argument("--only", nargs="+", choices=CONTENDERS, default=CONTENDERS)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=MODELS)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, help="steps per turn; default: 40 for criteo, an epoch for movielens")
    parser.add_argument("--out", type=Path, help="the JSON file")
    given = parser.parse_args()
    if given.rounds < 1:
        parser.error(f"--rounds {given.rounds}. Allowed: 1 or more.")
    shape = SHAPES[given.shape]
    rows = BATCH * given.steps if given.steps else shape.rows or BATCH * 40
    pythons = environments(given.environments, given.only, shape)
    record: dict[str, Any] = {"shape": shape.name, "batch": BATCH, "threads": int(THREADS), "rounds": given.rounds}
    record |= {"table_rows": sum(shape.cardinalities), "fields": len(shape.cardinalities), "machine": machine()}
    out = given.out or HERE / "results" / f"against-{shape.name}.json"
    folder = Path(tempfile.mkdtemp(prefix="against-"))
    try:
        record |= write(shape, rows, folder)
        job = {"folder": str(folder), "cardinalities": shape.cardinalities, "batch": BATCH, "ready": not shape.rows}
        print(", ".join(f"{key} {value}" for key, value in record.items() if key != "machine"))
        record["models"] = {}
        for model in given.models:
            able = {name: python for name, python in pythons.items() if model not in LACKS.get(name, ())}
            if not able:
                print(f"{model} is skipped: no contender has it")
                continue
            record["models"][model] = measure(able, {**job, "model": model}, given.rounds)
            show(model, record["models"][model], rows)
            record["machine"]["load_after"] = [round(load, 1) for load in os.getloadavg()]
            out.write_text(json.dumps(record, indent=1) + "\n")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
