"""Compares preparation by fieldwise, by fuxictr's preprocessing, and by pandas with scikit-learn label encoding.

    python benchmarks/prepare.py --rows 1000000 --fuxictr FUXICTR_VENV/bin/python
    python benchmarks/prepare.py --rows 45000000 --only fieldwise
    python benchmarks/prepare.py --rows 1000000 --only fieldwise polars duckdb --before ../before --rounds 3
    python benchmarks/prepare.py --columns 50 400 1000 10000

Each runs in a separate process, on the same generated rows (benchmarks/criteo_like.py), in sequence. Time is the wall
time of the whole process, imports included; memory is the peak resident set of that process. The rows are generated,
and split into files for fuxictr, before the clock starts. benchmarks/README.md describes how to install fuxictr.
`polars` and `duckdb` are plans of our own (benchmarks/prepare_plans.py). With a checkout of an earlier commit, both
versions prepare the same rows in turns, without tiers, which earlier commits do not have; datasets must be equal.

`--columns` measures only fieldwise, on 500 rows of each number of columns: text, integers and floats.
"""

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import prepare_plans

HERE = Path(__file__).parent
INTEGERS = [f"I{i}" for i in range(1, 14)]
CATEGORIES = [f"C{i}" for i in range(1, 27)]
MIN_COUNT = 10
WIDE_ROWS = 500


def fieldwise(folder: Path) -> dict[str, Any]:
    """Prepares with a random split, log-squared bins, vocabularies of the training rows, arrays on disk; in 4 GiB."""
    from fieldwise.data.criteo import Criteo
    from fieldwise.data.prepare import prepare

    stages: dict[str, float] = {}
    started = time.perf_counter()

    def progress(stage: str, *_: int | None) -> None:
        stages[stage] = time.perf_counter() - started  # time of the stage's last report

    shutil.rmtree(folder / "fieldwise", ignore_errors=True)  # of an earlier round
    source = Criteo(raw=folder / "rows.txt", tiers=0)  # one field per column, as in earlier commits
    data = prepare(source, folder / "fieldwise", progress=progress)
    ends = {stage: round(seconds, 1) for stage, seconds in stages.items()}
    found = {"ids": sum(data.schema.cardinalities), "rows": data.info["rows"], "stage_ends": ends}
    return {**found, "fingerprint": data.info["fingerprint"]}


def wide(folder: Path) -> dict[str, Any]:
    """Prepares with the source `table` and inferred rules."""
    from fieldwise.data.prepare import prepare
    from fieldwise.data.table import Table

    data = prepare(Table(raw=folder / "rows.csv", label="click"), folder / "wide")
    return {"fields": len(data.schema), "ids": sum(data.schema.cardinalities)}


def wide_rows(path: Path, columns: int) -> None:
    """Writes 500 rows of text and numbers."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.csv as csv

    draw = np.random.default_rng(0)
    rows: dict[str, Any] = {"click": draw.integers(0, 2, WIDE_ROWS)}
    for i in range(columns):
        few = draw.integers(0, 8, WIDE_ROWS)
        rows[f"c{i}"] = (few.astype(str), draw.random(WIDE_ROWS), np.char.add("v", few.astype(str)), few)[i % 4]
    csv.write_csv(pa.table(rows), path)


def measure_wide(counts: list[int], folder: Path) -> None:
    """Measures a table of each number of columns, and writes the results to a JSON file."""
    results = {}
    before = os.getloadavg()[0]
    for columns in counts:
        wide_rows(folder / "rows.csv", columns)
        results[str(columns)] = measure("wide", sys.executable, folder)
        shutil.rmtree(folder / "wide")
    record = {
        "rows": WIDE_ROWS,
        "columns": results,
        "load_before": round(before, 1),
        "machine": {"cores": os.cpu_count(), "cpu": platform.machine(), "python": platform.python_version()},
        "versions": {name: version(name) for name in ("duckdb", "ibis-framework", "pyarrow")},
    }
    (HERE / "results" / "prepare-wide.json").write_text(json.dumps(record, indent=1) + "\n")


def sklearn(folder: Path) -> dict[str, Any]:
    """Prepares as a typical notebook: pandas, rare values replaced, one LabelEncoder per column, all rows at once."""
    import numpy as np
    import pandas as pd
    from sklearn.preprocessing import LabelEncoder

    frame = pd.read_csv(folder / "rows.txt", sep="\t", names=["label", *INTEGERS, *CATEGORIES])
    for name in INTEGERS:
        z = frame[name]
        frame[name] = np.where(z > 2, np.floor(np.log(z.clip(lower=1)) ** 2), z - 2)
    ids = 0
    for name in [*INTEGERS, *CATEGORIES]:
        text = frame[name].astype(str)
        counts = text.value_counts()
        text = text.where(text.map(counts) >= MIN_COUNT, "unknown")
        encoder = LabelEncoder()
        frame[name] = encoder.fit_transform(text).astype(np.int32)
        ids += len(encoder.classes_)
    np.save(folder / "sklearn.npy", frame[[*INTEGERS, *CATEGORIES]].to_numpy(np.int32))
    return {"ids": ids}


def fuxictr(folder: Path) -> dict[str, Any]:
    """Prepares with fuxictr's Criteo processor and its published settings, from CSV files that are already split."""
    from fuxictr.datasets.criteo import CustomizedFeatureProcessor
    from fuxictr.preprocess import build_dataset

    columns = [
        {"name": INTEGERS, "active": True, "dtype": "float", "type": "categorical", "fill_na": 0,
         "preprocess": "convert_to_bucket"},
        {"name": CATEGORIES, "active": True, "dtype": "str", "type": "categorical", "fill_na": ""},
    ]  # fmt: skip
    label = {"name": "label", "dtype": "float"}
    encoder = CustomizedFeatureProcessor(columns, label, dataset_id="fuxictr", data_root=str(folder))
    parts = {f"{name}_data": str(folder / f"{name}.csv") for name in ("train", "valid", "test")}
    build_dataset(encoder, **parts, min_categr_count=MIN_COUNT)
    return {"ids": encoder.feature_map.total_features}


def split_files(folder: Path) -> None:
    """Writes the rows as three CSV files with a header, 8 : 1 : 1, for fuxictr."""
    header = ",".join(["label", *INTEGERS, *CATEGORIES]) + "\n"
    files = {name: (folder / f"{name}.csv").open("w") for name in ("train", "valid", "test")}
    for file in files.values():
        file.write(header)
    with (folder / "rows.txt").open() as rows:
        for number, line in enumerate(rows):
            name = {8: "valid", 9: "test"}.get(number % 10, "train")
            files[name].write(line.replace("\t", ","))
    for file in files.values():
        file.close()


def measure(name: str, python: str, folder: Path, checkout: Path | None = None) -> dict[str, Any]:
    """Measures one contender in a separate process; fieldwise with the code of a checkout, if given."""
    started = time.perf_counter()
    path = {} if checkout is None else {"PYTHONPATH": str(checkout.resolve() / "src")}
    with (folder / f"{name}.log").open("w") as log:
        process = subprocess.Popen(
            [python, __file__, "--inside", name, "--folder", str(folder)],
            stdout=log,
            stderr=log,
            env={**os.environ, **path},
        )
        _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - started
    text = (folder / f"{name}.log").read_text()
    if status:
        raise SystemExit(f"{name} failed:\n{text[-3000:]}")
    reported = json.loads(text.strip().splitlines()[-1])
    cpu = round(usage.ru_utime + usage.ru_stime, 1)
    result = {"wall_s": round(wall, 1), "cpu_s": cpu, "peak_gib": round(usage.ru_maxrss / 2**20, 2), **reported}
    print(f"{name:10} {result}", flush=True)
    return result


def in_turns(
    chosen: list[str], pythons: dict[str, str | None], folder: Path, given: argparse.Namespace
) -> dict[str, Any]:
    """Measures all contenders, round by round; returns the round of each with the median wall time."""
    checkouts = {name: HERE.parent if name == "fieldwise" else None for name in chosen}
    if given.before:
        checkouts = {"before": given.before, **checkouts}
    rounds: dict[str, list[dict[str, Any]]] = {name: [] for name in checkouts}
    for _ in range(given.rounds):
        for name, checkout in checkouts.items():
            what = "fieldwise" if name == "before" else name
            print(f"{name}: ", end="")
            rounds[name].append(measure(what, pythons.get(what) or sys.executable, folder, checkout))
    found = {name: sorted(runs, key=lambda run: run["wall_s"])[len(runs) // 2] for name, runs in rounds.items()}
    if given.before and found["before"]["fingerprint"] != found["fieldwise"]["fingerprint"]:
        raise SystemExit("the two versions prepared other rows")
    return {name: {**run, "walls_s": [run["wall_s"] for run in rounds[name]]} for name, run in found.items()}


def main() -> None:
    """Generates rows, measures each contender, and writes the results to a JSON file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument(
        "--columns", type=int, nargs="*", help="measure tables of 500 rows with these numbers of columns instead"
    )
    parser.add_argument("--raw", type=Path, help="existing rows made by criteo_like.py")
    parser.add_argument("--fuxictr", help="the Python of an environment with fuxictr")
    parser.add_argument("--polars", help="the Python of an environment with polars")
    parser.add_argument("--only", nargs="*", default=["fieldwise", "sklearn", "fuxictr"])
    parser.add_argument("--before", type=Path, help="a checkout of an earlier commit, measured in turns with this one")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--out", type=Path, help="file of the results")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    given = parser.parse_args()
    plans = {"polars": prepare_plans.polars, "duckdb": prepare_plans.duckdb}
    contenders = {"fieldwise": fieldwise, "wide": wide, "sklearn": sklearn, "fuxictr": fuxictr, **plans}
    if given.inside:
        print(json.dumps(contenders[given.inside](given.folder)))
        return
    pythons = {"fuxictr": given.fuxictr, "polars": given.polars}
    folder = Path(tempfile.mkdtemp(dir=given.folder))
    try:
        if given.columns:
            measure_wide(given.columns, folder)
            return
        if given.raw:
            (folder / "rows.txt").symlink_to(given.raw.resolve())
        else:
            subprocess.run([sys.executable, HERE / "criteo_like.py", str(given.rows), folder / "rows.txt"], check=True)
        chosen = [name for name in given.only if name != "fuxictr" or given.fuxictr]
        if "fuxictr" in chosen:
            split_files(folder)
        before = os.getloadavg()[0]
        results = in_turns(chosen, pythons, folder, given)
        record = {
            "rows": given.rows,
            "raw_bytes": (folder / "rows.txt").stat().st_size,
            "results": results,
            "load_before": round(before, 1),
            "machine": {"cores": os.cpu_count(), "cpu": platform.machine(), "python": platform.python_version()},
            "versions": {
                name: version(name) for name in ("duckdb", "ibis-framework", "pyarrow", "scikit-learn", "pandas")
            },
        }
        out = given.out or HERE / "results" / f"prepare-{given.rows}.json"
        out.parent.mkdir(exist_ok=True)
        out.write_text(json.dumps(record, indent=1) + "\n")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
