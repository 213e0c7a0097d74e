"""Check that a change of the code changes no result.

    git worktree add ../before COMMIT
    python scripts/same_results.py write before.json --tree ../before --ml-1m ml-1m.zip
    python scripts/same_results.py compare before.json --ml-1m ml-1m.zip

The first writes the records of the old source tree, the second compares them with those of this one, bit by bit.
It runs the quick start, every search on planted data, and MovieLens-1M with each of the four models, through the
command line. Without `--ml-1m`, the last four are left out. Times, memory, versions and settings are not compared,
nor keys that only the new records have. `write` exits with 1 if a run failed, `compare` also if a record differs.
Each run is a process of its own, with `src` of its tree first on the path: neither tree need be installed. `--jobs 8`
runs eight at a time, and `--only` those whose names begin with its text ("planted", "movielens-1m fm"); neither
changes a result, `--threads` (of each run, 2) does.

Both halves must run on the same kind of processor with the same PyTorch: another one rounds differently. Where
nothing can be installed, a folder with the missing libraries is enough:

    pip install --target deps --no-deps -c constraints.txt annotated-doc annotated-types duckdb filelock \
        ibis-framework pydantic pydantic-core ...
    PYTHONPATH=deps python scripts/same_results.py write before.json --tree ../before --ml-1m ml-1m.zip --jobs 8
    PYTHONPATH=deps python scripts/same_results.py compare before.json --ml-1m ml-1m.zip --jobs 8
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
LEFT_OUT: Final = {"seconds", "peak_memory", "versions", "settings", "device"}
SEARCHES: Final = (
    "autodim", "elimination", "ham", "ham-p", "magnitude", "mde", "optembed", "pep", "race", "random", "rounds", "sam",
    "sam-gs", "sam-sigmoid", "sseds", "uniform",
)  # fmt: skip
MODELS: Final = ("fm", "deepfm", "autoint", "dcnv2")
COMMAND: Final = "from fieldwise.cli import main; main()"


def commands(ml_1m: Path | None) -> dict[str, list[str]]:
    """The command-line arguments of every run, by name."""
    planted = ["--source", "planted", "--budget", "25%", "--device", "cpu", "--set", "data.rows=6000"]
    few = ["--set", "pretrain.epochs=3", "--set", "retrain.epochs=3"]
    found = {"quickstart": ["settings/quickstart.toml"]}
    found |= {f"planted {search}": ["--search", search, *planted, *few] for search in SEARCHES}
    if ml_1m is not None:
        real = ["--source", "movielens-1m", "--raw", str(ml_1m.resolve()), "--budget", "54k parameters"]
        some = [
            "--search",
            "ham",
            "--set",
            "pretrain.epochs=2",
            "--set",
            "search.epochs=2",
            "--set",
            "retrain.epochs=2",
        ]
        found |= {f"movielens-1m {model}": ["--model", model, "--device", "cpu", *real, *some] for model in MODELS}
    return found


def results(given: argparse.Namespace) -> dict[str, Any]:
    """The records of every run, without keys that may differ."""
    chosen = {name: words for name, words in commands(given.ml_1m).items() if name.startswith(given.only)}
    with tempfile.TemporaryDirectory() as home, ThreadPoolExecutor(given.jobs) as pool:
        outs = [Path(home) / f"run-{place}" for place in range(len(chosen))]
        return dict(zip(chosen, pool.map(records, chosen.values(), outs, [given] * len(outs)), strict=True))


def records(words: list[str], out: Path, given: argparse.Namespace) -> dict[str, Any]:
    """Run one command over a source tree, and read the records it wrote: none if it fails."""
    tree = given.tree.resolve()
    path = os.pathsep.join([str(tree / "src"), *filter(None, [os.environ.get("PYTHONPATH")])])
    env = {**os.environ, "OMP_NUM_THREADS": str(given.threads), "PYTHONPATH": path}
    done = subprocess.run(
        [sys.executable, "-c", COMMAND, "run", *words, "--out", str(out)],
        cwd=tree, env=env, check=False, capture_output=True, text=True,
    )  # fmt: skip
    if done.returncode:
        sys.stderr.write(f"fieldwise run {' '.join(words)}: exit code {done.returncode}\n{done.stderr}\n")
        return {}
    found = {path.relative_to(out).as_posix(): kept(json.loads(path.read_text())) for path in out.rglob("record.json")}
    sys.stderr.write(f"{' '.join(words)}: {len(found)} records\n")
    return found


def kept(value: Any) -> Any:
    """A record without keys that may differ."""
    if isinstance(value, dict):
        return {key: kept(inner) for key, inner in value.items() if key not in LEFT_OUT}
    return [kept(inner) for inner in value] if isinstance(value, list) else value


def differences(before: Any, after: Any, at: str = "") -> Iterator[str]:
    """One line for each value of `before` that is not the same in `after`, with its place. More keys are no change."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in before:
            yield from differences(before[key], after.get(key, "nothing"), f"{at} {key}".strip())
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for place, (one, other) in enumerate(zip(before, after, strict=True)):
            yield from differences(one, other, f"{at} [{place}]")
    elif repr(before) != repr(after):
        yield f"{at}: {before} became {after}"


def main() -> int:
    """Write or compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["write", "compare"])
    parser.add_argument("file", type=Path)
    parser.add_argument("--tree", type=Path, default=ROOT, help="the source tree to run; this one unless given")
    parser.add_argument("--ml-1m", type=Path, help="GroupLens' archive; without it, those runs are skipped")
    parser.add_argument("--only", default="", help="those runs whose names begin with this text")
    parser.add_argument("--threads", type=int, default=2, help="of each run")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time")
    given = parser.parse_args()
    found = results(given)
    if given.what == "write":
        given.file.write_text(json.dumps(found, indent=1) + "\n")
        return 0 if all(found.values()) else 1
    return compare(json.loads(given.file.read_text()), found)


def compare(before: dict[str, Any], after: dict[str, Any]) -> int:
    """Print how the records of every run differ; 0 if they are equal."""
    status = 0
    for name, found in after.items():
        lines = list(differences(before[name], found)) if before.get(name) else ["not in the file"]
        sys.stdout.write(f"{name}: {'DIFFERENT' if lines else 'equal'} ({len(found)} records)\n")
        sys.stdout.writelines(f"    {line}\n" for line in lines[:20])
        status |= bool(lines)
    return status


if __name__ == "__main__":
    sys.exit(main())
