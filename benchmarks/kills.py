"""Kills commands at random moments and repeats them: nothing may be lost, and every number must be the same.

    python benchmarks/kills.py --kills 200 --seed 0 --jobs 2
    python benchmarks/kills.py --kills 10 --only "run, ham" compare

Each command first runs whole, which gives its numbers and its seconds. It is then begun in an empty folder, killed with
SIGKILL, with every process it started, at a random moment of those seconds, begun again, and so on up to four times;
the last time it is left alone. After every kill no file under its own name may be half, and no finished stage may be
gone; at the end the numbers must be those of the whole run, and no partial file may be left.
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
MOST: Final = 4
"""Kills of one folder before its command is left alone."""
LONGEST_S: Final = 600.0


@dataclass
class Tally:
    """What became of one command."""

    name: str
    group: str
    seconds: float = 0.0
    """Of the run that was never killed."""
    folders: int = 0
    kills: int = 0
    resumed: int = 0
    """Commands that began in a folder in which a killed one had left something."""
    equal: int = 0
    """Folders that ended with the numbers of the run that was never killed."""
    moments: list[float] = field(default_factory=list)
    """Seconds after which it was killed."""
    problems: list[str] = field(default_factory=list)


def start(words: Sequence[str], folder: Path) -> "subprocess.Popen[bytes]":
    """The command, as a group of processes of its own that says what it says into a file."""
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
    """Runs a command to its end, which must be good; the seconds it took."""
    began = time.monotonic()
    code = start(words, folder).wait(LONGEST_S)
    if code:
        raise RuntimeError(f"exit code {code}: {' '.join(words)}: {_last_line(folder)}")
    return time.monotonic() - began


def _last_line(folder: Path) -> str:
    return (folder / "said.txt").read_text(errors="replace").strip().splitlines()[-1:][0]


def killed(words: Sequence[str], folder: Path, after: float) -> bool:
    """Runs a command and kills it after some seconds; whether it was still at work then."""
    process = start(words, folder)
    try:
        process.wait(after)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return True
    return False


def inputs(folder: Path, made: Path | None) -> Path:
    """A folder in which a command finds what it reads."""
    folder.mkdir(parents=True)
    write_inputs(folder)
    if made:
        shutil.copytree(made, folder / "model")
    return folder


def finished(folder: Path) -> dict[str, bytes]:
    """The records of all stages that are complete; the run's own is written again by every command."""
    return {str(path): path.read_bytes() for path in (folder / "out").glob("*/**/record.json")}


def one_folder(command: Command, folder: Path, tally: Tally, draw: random.Random, expected: Any) -> None:
    """Kills a command in one folder, up to `MOST` times, lets it end, and compares."""
    most = draw.randint(1, MOST)
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
    """Kills one command often enough."""
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
    """A deployed model for the exports."""
    folder = inputs(root / "model", None)
    whole((*RUN, "--search", "uniform", "--out", "out"), folder)
    return next((folder / "out").glob("seed-0/compact/*"))


def rows(tallies: Sequence[Tally]) -> list[dict[str, Any]]:
    """One row for each kind of command."""
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
    """Kills, prints the table, writes the JSON; 1 where anything differed."""
    given = _arguments()
    began, about = time.monotonic(), machine()
    chosen = [c for c in commands() if given.only is None or c.name in given.only or c.group in given.only]
    total = sum(command.share for command in chosen)
    wanted = {command.name: max(1, round(given.kills * command.share / total)) for command in chosen}
    root = Path(given.folder or tempfile.mkdtemp(prefix="kills-"))
    made = model_of(root) if any(command.needs_model for command in chosen) else None
    with ThreadPoolExecutor(given.jobs) as pool:
        # the longest first, so that the last ones end together
        tasks = [
            pool.submit(measure, c, wanted[c.name], root, given.seed, made if c.needs_model else None)
            for c in sorted(chosen, key=lambda c: -wanted[c.name] * (5 if "Spark" in c.name else 1))
        ]
        tallies = sorted((task.result() for task in tasks), key=lambda one: one.name)
    problems = [f"{one.name}: {problem}" for one in tallies for problem in one.problems]
    print(f"{'command':18} {'folders':>8} {'kills':>6} {'resumed':>8} {'equal':>6} {'problems':>9}")
    for row in rows(tallies):
        print("{command:18} {folders:8} {kills:6} {resumed:8} {equal:6} {problems:9}".format(**row))
    print("\n".join(problems) if problems else "No problems.")
    record = {
        "machine": about, "seed": given.seed, "jobs": given.jobs, "minutes": round((time.monotonic() - began) / 60, 1),
        "kills": sum(one.kills for one in tallies), "rows": rows(tallies), "commands": [asdict(one) for one in tallies],
    }  # fmt: skip
    given.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    if not problems and not given.folder:
        shutil.rmtree(root)
    return int(bool(problems))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2, help="commands that are killed side by side")
    parser.add_argument("--only", nargs="+", help="names of commands or of rows of the table")
    parser.add_argument("--folder", type=Path, help="an empty folder to work in, which is kept")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "kills.json", help="the JSON file")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
