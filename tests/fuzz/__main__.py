"""`python -m tests.fuzz --cases 10000 --seed 0`: prints counts by target and mutation, and every failed case."""

import argparse
import json
import platform
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path

from tests.fuzz.oracle import MEMORY, SECONDS
from tests.fuzz.runner import ROOT, Fuzzer, Result, counts, failures


def main() -> int:
    """Runs the cases; returns 1 if any failed."""
    arguments = _arguments()
    with tempfile.TemporaryDirectory(prefix="fuzz-") as made:
        folder = Path(arguments.keep or made) / "cases"
        fuzzer = Fuzzer(folder, arguments.seed, arguments.jobs, arguments.seconds, arguments.factory)
        numbers = [arguments.case] if arguments.case is not None else _chosen(fuzzer, arguments)
        known = _logged(arguments.log)
        left = [number for number in numbers if number not in known]
        if arguments.keep:
            known |= {number: fuzzer.case(number, keep=True) for number in left}
        else:
            known |= {one.number: one for one in _shown(fuzzer.run(left), len(left), arguments.log)}
        results = [known[number] for number in numbers]
        fuzzer.close()
    _say(_table(results))
    for one in failures(results):
        _say(f"case {one['number']}: {one['target']}, {one['mutation']}, {one['file']}: {one['wrong']}")
    if arguments.out:
        _write(arguments.out, arguments, results)
    return int(any(one.state == "failed" for one in results))


def _chosen(fuzzer: Fuzzer, arguments: argparse.Namespace) -> list[int]:
    """Returns the numbers of the cases whose target and mutation match `--only`."""
    kinds = ((number, *fuzzer.kind(number)) for number in range(arguments.first, arguments.first + arguments.cases))
    return [number for number, target, kind in kinds if re.search(arguments.only, f"{target.name}, {kind}")]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--cases", type=int, default=200, help="number of cases")
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--case", type=int, help="run only the case of this number")
    parser.add_argument("--only", default="", help="run only cases whose `target, mutation` matches this pattern")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2, help="cases run in parallel")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="time limit per case")
    parser.add_argument("--out", type=Path, help="write the counts as JSON to this file")
    parser.add_argument("--factory", action="store_true", help="mutate the model folder of a factory instead")
    parser.add_argument("--log", type=Path, help="append every case to this file, and resume from it")
    parser.add_argument("--keep", type=Path, help="keep the folders of the cases in this folder, for inspection")
    return parser.parse_args()


def _logged(log: Path | None) -> dict[int, Result]:
    """The cases that an earlier run completed without a failure; a failed case is run again."""
    lines = log.read_text(encoding="utf-8").splitlines() if log and log.exists() else []
    return {one.number: one for one in (Result(**json.loads(line)) for line in lines) if one.state != "failed"}


def _shown(results: Iterable[Result], total: int, log: Path | None) -> Iterable[Result]:
    failed = 0
    for done, one in enumerate(results, 1):
        if log:
            with log.open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(one)) + "\n")
        failed += one.state == "failed"
        if done % 100 == 0 or done == total:
            sys.stderr.write(f"\r{done:,} of {total:,} cases, {failed} failed ")
            sys.stderr.flush()
        yield one
    sys.stderr.write("\n")


def _table(results: list[Result]) -> str:
    lines = [f"{'target':42} {'mutation':16} {'cases':>6} {'refused':>8} {'accepted':>9} {'failed':>7}"]
    for target, kinds in counts(results).items():
        for kind, found in kinds.items():
            numbers = (sum(found.values()), found["refused"], found["accepted"], found["failed"])
            lines.append("{:42} {:16} {:6} {:8} {:9} {:7}".format(target, kind, *numbers))
    return "\n".join(lines)


def _write(path: Path, arguments: argparse.Namespace, results: list[Result]) -> None:
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False).stdout
    found = {
        "commit": commit.strip()[:12],
        "versions": {
            "python": platform.python_version(),
            **{name: version(name) for name in ("torch", "pyarrow", "duckdb")},
        },
        "seed": arguments.seed,
        "cases": len(results),
        "seconds": round(sum(one.seconds for one in results)),
        "limits": {"seconds": arguments.seconds, "bytes": MEMORY},
        "longest_s": max(one.seconds for one in results),
        "largest_bytes": max(one.memory for one in results),
        "counts": counts(results),
        "failures": failures(results),
    }
    path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")


if __name__ == "__main__":
    sys.exit(main())
