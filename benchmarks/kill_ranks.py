"""Kills one process of a run on two processes at random moments: nothing may be lost, every number must be equal.

    python benchmarks/kill_ranks.py --kills 20 --seed 0
    python benchmarks/kill_ranks.py --kills 20 --seed 0 --sharded --out benchmarks/results/kill_sharded.json

The run first ends without a kill, which gives its numbers and its duration. Then it is started in an empty folder, and
a random one of its processes is killed with SIGKILL at a random moment of that duration. In every other folder torchrun
restarts the processes itself (--max-restarts); in the rest the same command is started again. The last attempt is not
killed. The numbers at the end must be those of the run without kills.
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
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from against import machine
from kill_commands import RUN, half_files, numbers, write_inputs

HERE: Final = Path(__file__).resolve().parent
PROCESSES: Final = 2
LONGEST_S: Final = 900.0
WORDS: Final = (*RUN, "--search", "ham", "--set", "search.epochs=3", "--set", "search.batch=64", "--out", "out")
SHARDED: Final = ("--set", "run.tables=sharded", "--set", "run.sharded_from=20")


@dataclass
class Tally:
    """What was counted."""

    seconds: float = 0.0
    """Duration of the run that was never killed."""
    folders: int = 0
    kills: int = 0
    words: tuple[str, ...] = WORDS
    """The command."""
    restarts: int = 0
    """Kills after which torchrun restarted the processes, without another command."""
    repeats: int = 0
    """Kills after which the same command was started again."""
    equal: int = 0
    moments: list[float] = field(default_factory=list)
    ranks: list[int] = field(default_factory=list)
    """The process that each kill hit."""
    problems: list[str] = field(default_factory=list)


def start(folder: Path, restarts: int, command: tuple[str, ...]) -> "subprocess.Popen[bytes]":
    """Starts the run on two processes, with its output in a file."""
    words = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(PROCESSES)]
    words += ["--max-restarts", str(restarts), "--monitor-interval", "0.1", "-m", "fieldwise", *command]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "FIELDWISE_TIMEOUT": "60"}
    with (folder / "said.txt").open("ab") as said:
        return subprocess.Popen(
            words,
            cwd=folder,
            env=environment,
            stdout=said,
            stderr=said,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )


def ranks_of(launcher: int) -> dict[int, int]:
    """The process of each rank among the children of a launcher."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            variables = (folder / "environ").read_bytes().split(b"\0") if parent == launcher else []
        except (OSError, ValueError):  # it has ended
            continue
        found |= {int(line[5:]): int(folder.name) for line in variables if line.startswith(b"RANK=")}
    return found


def hit(process: "subprocess.Popen[bytes]", after: float, draw: random.Random) -> int | None:
    """Kills a random process of the run after some seconds; returns its rank, or None if the run had ended."""
    end = time.monotonic() + after
    while time.monotonic() < end:
        if process.poll() is not None:
            return None
        time.sleep(0.02)
    while process.poll() is None:
        found = ranks_of(process.pid)
        if len(found) == PROCESSES:
            rank = draw.randrange(PROCESSES)
            os.kill(found[rank], signal.SIGKILL)
            return rank
        time.sleep(0.02)
    return None


def one_folder(folder: Path, tally: Tally, draw: random.Random, expected: Any) -> None:
    """Kills the run once in one folder, lets it end, and compares."""
    folder.mkdir(parents=True)
    write_inputs(folder)
    restarts = tally.folders % 2
    tally.folders += 1
    process, moment = start(folder, restarts, tally.words), draw.uniform(0, tally.seconds)
    rank = hit(process, moment, draw)
    code = process.wait(LONGEST_S)
    if rank is not None:
        tally.kills += 1
        tally.ranks.append(rank)
        tally.moments.append(round(moment, 2))
        tally.restarts += restarts and not code
        tally.repeats += bool(code)
        if restarts and code:
            tally.problems.append(f"torchrun did not restart in folder {tally.folders}: exit code {code}")
    if code:
        tally.problems += [f"half a file: {name}" for name in half_files(folder / "out")]
        code = start(folder, 0, tally.words).wait(LONGEST_S)
    if code:
        tally.problems.append(f"exit code {code} in folder {tally.folders}")
        return
    tally.problems += [f"left: {path}" for path in folder.rglob("*.partial")]
    same = numbers(folder / "out") == expected
    tally.equal += same
    if not same:
        tally.problems.append(f"other numbers in folder {tally.folders}")


def main() -> int:
    """Runs all kills and writes the JSON file; returns 1 if there were problems."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=HERE / "results" / "kill_ranks.json", help="the JSON file")
    parser.add_argument("--sharded", action="store_true", help="tables sharded over the processes; needs TorchRec")
    given = parser.parse_args()
    began, about, draw = time.monotonic(), machine(), random.Random(given.seed)
    tally = Tally(words=(*WORDS, *SHARDED) if given.sharded else WORDS)
    root = Path(tempfile.mkdtemp(prefix="kill-ranks-"))
    whole = root / "whole"
    whole.mkdir()
    write_inputs(whole)
    if start(whole, 0, tally.words).wait(LONGEST_S):
        print((whole / "said.txt").read_text(errors="replace"))
        return 1
    tally.seconds = round(time.monotonic() - began, 2)
    expected = numbers(whole / "out")
    while tally.kills < given.kills:
        folder = root / str(tally.folders)
        one_folder(folder, tally, draw, expected)
        print(f"{tally.kills} kills, {tally.equal} of {tally.folders} folders equal, {tally.problems}", flush=True)
        if not tally.problems:
            shutil.rmtree(folder)
    minutes = round((time.monotonic() - began) / 60, 1)
    record = {"machine": about, "seed": given.seed, "processes": PROCESSES, "minutes": minutes, **asdict(tally)}
    given.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    if not tally.problems:
        shutil.rmtree(root)
    return int(bool(tally.problems))


if __name__ == "__main__":
    sys.exit(main())
