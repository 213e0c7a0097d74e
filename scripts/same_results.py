"""Check that a change of the code changes no result.

    python scripts/same_results.py write before.json --ml-1m ml-1m.zip     # on the old commit
    python scripts/same_results.py compare before.json --ml-1m ml-1m.zip   # on the new one

It runs the quick start, every search on planted data, and MovieLens-1M with each of the four models, through the
command line, and compares the records bit by bit. Times, memory, versions and settings are not compared.
Both must run on the same machine: another processor or another PyTorch rounds differently.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
LEFT_OUT: Final = {"seconds", "peak_memory", "versions", "settings", "device"}
SEARCHES: Final = (
    "autodim", "ham", "ham-p", "magnitude", "mde", "optembed", "pep", "race", "random", "rounds", "sam", "sam-gs",
    "sam-sigmoid", "sseds", "uniform",
)  # fmt: skip
MODELS: Final = ("fm", "deepfm", "autoint", "dcnv2")


def commands(ml_1m: Path | None) -> dict[str, list[str]]:
    """The command-line arguments of every run, by name."""
    planted = ["--source", "planted", "--budget", "25%", "--device", "cpu", "--set", "data.rows=6000"]
    few = ["--set", "pretrain.epochs=3", "--set", "retrain.epochs=3"]
    found = {"quickstart": ["settings/quickstart.toml"]}
    found |= {f"planted {search}": ["--search", search, *planted, *few] for search in SEARCHES}
    if ml_1m is not None:
        real = ["--source", "movielens-1m", "--raw", str(ml_1m), "--budget", "54k parameters", "--device", "cpu"]
        some = ["--set", "pretrain.epochs=2", "--set", "search.epochs=2", "--set", "retrain.epochs=2"]
        found |= {f"movielens-1m {model}": ["--model", model, *real, *some] for model in MODELS}
    return found


def results(given: argparse.Namespace) -> dict[str, Any]:
    """The records of every run, without keys that may differ."""
    found: dict[str, Any] = {}
    env = {**os.environ, "OMP_NUM_THREADS": str(given.threads)}
    with tempfile.TemporaryDirectory() as home:
        for place, (name, words) in enumerate(commands(given.ml_1m).items()):
            if given.only not in (None, name):
                continue
            out = Path(home) / f"run-{place}"
            subprocess.run([given.fieldwise, "run", *words, "--out", str(out)], cwd=ROOT, env=env, check=True,
                           stdout=subprocess.DEVNULL)  # fmt: skip
            records = sorted(path for path in out.rglob("record.json"))
            found[name] = {_place(path, out): _kept(json.loads(path.read_text())) for path in records}
            sys.stderr.write(f"{name}: {len(records)} records\n")
    return found


def _place(path: Path, out: Path) -> str:
    return path.relative_to(out).as_posix()


def _kept(value: Any) -> Any:
    """A record without keys that may differ."""
    if isinstance(value, dict):
        return {key: _kept(inner) for key, inner in value.items() if key not in LEFT_OUT}
    return [_kept(inner) for inner in value] if isinstance(value, list) else value


def main() -> int:
    """Write or compare."""
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["write", "compare"])
    parser.add_argument("file", type=Path)
    parser.add_argument("--ml-1m", type=Path, help="GroupLens' archive; without it, those runs are skipped")
    parser.add_argument("--fieldwise", default=str(Path(sys.executable).with_name("fieldwise")), help="the command")
    parser.add_argument("--only", help="one of the runs, by name")
    parser.add_argument("--threads", type=int, default=2)
    given = parser.parse_args()
    found = results(given)
    if given.what == "write":
        given.file.write_text(json.dumps(found, indent=1) + "\n")
        return 0
    before = json.loads(given.file.read_text())
    different = [name for name in before if before[name] != found.get(name)]
    for name in before:
        sys.stdout.write(f"{name}: {'DIFFERENT' if name in different else 'equal'} ({len(before[name])} records)\n")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
