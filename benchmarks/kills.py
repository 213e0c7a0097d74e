"""Kills commands at random moments and repeats them: nothing may be lost, and every number must be equal.

    python benchmarks/kills.py --kills 200 --seed 0 --jobs 2
    python benchmarks/kills.py --kills 10 --only "run, ham" compare

Each command first runs without a kill, which gives its numbers and its duration. It is then started in an empty
folder, killed with SIGKILL, with every process it started, at a random moment of that duration, and restarted, up to
four times; the last run is not killed. After every kill no file under its final name may be truncated, and no
complete stage may be lost; at the end the numbers must be those of the run without kills, and no partial file may
remain.
"""

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from against import machine
from kill_commands import RUN, Command, commands, half_files, write_inputs

HERE: Final = Path(__file__).resolve().parent
MAX_KILLS: Final = 4
"""Maximum kills per folder."""
LONGEST_S: Final = 600.0


@dataclass
class Tally:
    """The results of one command."""

    name: str
    group: str
    seconds: float = 0.0
    """Duration of the run that was never killed."""
    folders: int = 0
    kills: int = 0
    resumed: int = 0
    """Commands started in a folder with files from a killed one."""
    equal: int = 0
    """Folders whose final numbers equal those of the run that was never killed."""
    moments: list[float] = field(default_factory=list)
    """Seconds from start to kill."""
    problems: list[str] = field(default_factory=list)


def start(words: Sequence[str], folder: Path) -> "subprocess.Popen[bytes]":
    """Starts the command in a new process group, with its output in a file."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TMPDIR": str(folder.parent)}
    code = [sys.executable, "-c", "from fieldwise.cli import main; main()", *words]
    with (folder / "said.txt").open("ab") as said:
        return subprocess.Popen(
            code,
            cwd=folder,
            env=environment,
            stdout=said,
            stderr=said,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )


def whole(words: Sequence[str], folder: Path) -> float:
    """Runs a command to its end and returns its duration; raises if it fails."""
    began = time.monotonic()
    code = start(words, folder).wait(LONGEST_S)
    if code:
        raise RuntimeError(f"exit code {code}: {' '.join(words)}: {_last_line(folder)}")
    return time.monotonic() - began


def _last_line(folder: Path) -> str:
    return (folder / "said.txt").read_text(errors="replace").strip().splitlines()[-1:][0]


def killed(words: Sequence[str], folder: Path, after: float) -> bool:
    """Runs a command and kills it after some seconds; returns whether it was still running."""
    process = start(words, folder)
    try:
        process.wait(after)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return True
    return False


def inputs(folder: Path, made: Path | None) -> Path:
    """Creates a folder with the inputs of a command."""
    folder.mkdir(parents=True)
    write_inputs(folder)
    if made:
        shutil.copytree(made, folder / "model")
    return folder


def finished(folder: Path) -> dict[str, bytes]:
    """Returns the records of all complete stages, without the run's own, which every command rewrites."""
    return {str(path): path.read_bytes() for path in (folder / "out").glob("*/**/record.json")}


def one_folder(command: Command, folder: Path, tally: Tally, draw: random.Random, expected: Any) -> None:
    """Kills a command in one folder, up to `MAX_KILLS` times, lets it end, and compares."""
    most = draw.randint(1, MAX_KILLS)
    tally.folders += 1
    for _ in range(most):
        before, there = finished(folder), _any_work(folder)
        moment = draw.uniform(0, tally.seconds)
        hit = killed(command.words, folder, moment)
        tally.resumed += there
        if not hit:
            break
        tally.kills += 1
        tally.moments.append(round(moment, 2))
        tally.problems += [f"half a file: {name}" for name in half_files(folder / "out")]
        after = finished(folder)
        tally.problems += [f"lost or changed: {name}" for name, data in before.items() if after.get(name) != data]
    tally.resumed += _any_work(folder)
    whole(command.words, folder)
    tally.problems += [f"left: {path}" for path in folder.rglob("*") if path.name.endswith(".partial")]
    same = command.outcome(folder / "out") == expected
    tally.equal += same
    if not same:
        tally.problems.append(f"other numbers in folder {tally.folders}")


def _any_work(folder: Path) -> bool:
    return (folder / "out").exists() or any(folder.glob(".out*"))


def measure(command: Command, kills: int, root: Path, seed: int, made: Path | None) -> Tally:
    """Kills one command until it was killed `kills` times."""
    tally, draw = Tally(command.name, command.group), random.Random(f"{seed}/{command.name}")
    home = root / command.name.replace(", ", "-")
    reference = inputs(home / "whole", made)
    try:
        tally.seconds = round(whole(command.words, reference), 2)
        expected = command.outcome(reference / "out")
        while tally.kills < kills:
            folder = inputs(home / str(tally.folders), made)
            one_folder(command, folder, tally, draw, expected)
            if not tally.problems:
                shutil.rmtree(folder)
    except (RuntimeError, OSError, AssertionError, subprocess.TimeoutExpired) as error:
        tally.problems.append(f"{type(error).__name__}: {error}")
    problems = f", {len(tally.problems)} problems" if tally.problems else ""
    print(f"{command.name}: {tally.kills} kills in {tally.folders} folders, {tally.equal} equal{problems}", flush=True)
    return tally


def model_of(root: Path) -> Path:
    """Runs a search and returns the folder of its compact model, for the exports."""
    folder = inputs(root / "model", None)
    whole((*RUN, "--search", "uniform", "--out", "out"), folder)
    return next((folder / "out").glob("seed-0/compact/*"))


def table_rows(tallies: Sequence[Tally]) -> list[dict[str, Any]]:
    """Returns one row per group of commands."""
    found: dict[str, dict[str, Any]] = {}
    for one in tallies:
        row = found.setdefault(
            one.group, {"command": one.group, "folders": 0, "kills": 0, "resumed": 0, "equal": 0, "problems": 0}
        )
        for name in ("folders", "kills", "resumed", "equal"):
            row[name] += getattr(one, name)
        row["problems"] += len(one.problems)
    return list(found.values())


def main() -> int:
    """Runs all kills, prints the table and writes the JSON file; returns 1 if there were problems."""
    given = _arguments()
    began, about = time.monotonic(), machine()
    chosen = [c for c in commands() if given.only is None or c.name in given.only or c.group in given.only]
    total = sum(command.share for command in chosen)
    wanted = {command.name: max(1, round(given.kills * command.share / total)) for command in chosen}
    root = Path(given.folder or tempfile.mkdtemp(prefix="kills-"))
    made = model_of(root) if any(command.needs_model for command in chosen) else None
    with ThreadPoolExecutor(given.jobs) as pool:
        # the longest first, so that the pool stays busy to the end
        tasks = [
            pool.submit(measure, c, wanted[c.name], root, given.seed, made if c.needs_model else None)
            for c in sorted(chosen, key=lambda c: -wanted[c.name] * (5 if "Spark" in c.name else 1))
        ]
        tallies = sorted((task.result() for task in tasks), key=lambda one: one.name)
    counted = table_rows(tallies)
    problems = [f"{one.name}: {problem}" for one in tallies for problem in one.problems]
    print(f"{'command':18} {'folders':>8} {'kills':>6} {'resumed':>8} {'equal':>6} {'problems':>9}")
    for row in counted:
        print("{command:18} {folders:8} {kills:6} {resumed:8} {equal:6} {problems:9}".format(**row))
    print("\n".join(problems) if problems else "No problems.")
    record = {
        "machine": about, "seed": given.seed, "jobs": given.jobs, "minutes": round((time.monotonic() - began) / 60, 1),
        "kills": sum(one.kills for one in tallies), "rows": counted, "commands": [asdict(one) for one in tallies],
    }  # fmt: skip
    given.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    if not problems and not given.folder:
        shutil.rmtree(root)
    return int(bool(problems))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2, help="commands tested in parallel")
    parser.add_argument("--only", nargs="+", help="names of commands or of rows of the table")
    parser.add_argument("--folder", type=Path, help="an empty folder to work in; it is not deleted")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "kills.json", help="the JSON file")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
