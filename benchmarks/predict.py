"""Measures rows per second and peak memory of `fieldwise predict`, from Parquet to Parquet, and one row in Python.

    python benchmarks/predict.py --rows 10000000
    git worktree add ../before COMMIT && python benchmarks/predict.py --rows 10000000 --before ../before --rounds 3

The rows are shaped like Criteo's (benchmarks/criteo_like.py). The model is a DCN-V2 over vocabularies of the first
million rows with a random quarter of the columns; its weights are not trained, which does not affect the cost. The
prediction runs in a separate process; time is its wall time, imports included, memory its peak resident set. One row is
that of a model of the quick start's size. With an earlier commit, both take turns, and all predictions must be equal.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from criteo_like import _CHUNK as CHUNK
from criteo_like import criteo_rows, write

from fieldwise.core.budget import Budget
from fieldwise.core.mask import Mask
from fieldwise.core.select import select
from fieldwise.data.criteo import Criteo
from fieldwise.data.planted import Planted
from fieldwise.data.prepare import prepare
from fieldwise.exports.folder import export
from fieldwise.models.compact import compact
from fieldwise.models.dcnv2 import DCNv2

HERE = Path(__file__).parent


def make_rows(path: Path, rows: int) -> None:
    """Writes Parquet with half a million rows per row group."""
    writer = None
    for seed, start in enumerate(range(0, rows, CHUNK)):
        part = criteo_rows(min(CHUNK, rows - start), seed)
        writer = writer or pq.ParquetWriter(path, part.schema)
        writer.write_table(part)
    assert writer is not None
    writer.close()


def make_model(folder: Path) -> Path:
    """Exports a compact model over the vocabularies of a million rows, and returns its folder."""
    write(folder / "rows.txt", 1_000_000)
    data = prepare(
        Criteo(raw=folder / "rows.txt", tiers=0), folder / "data"
    )  # one field per column, as published figures
    full = DCNv2().build(data.schema.layout(16)).eval()
    scores = np.random.default_rng(0).random(full.layout.columns)
    mask = select(scores, full.layout, Budget.percent(25, "columns"))
    export(compact(full, mask), folder / "model", data.encoder, mask)
    return folder / "model"


ONE_ROW = """
import json, statistics, sys, time
begun = time.perf_counter()
import fieldwise
predictor = fieldwise.load(sys.argv[1])
loaded = time.perf_counter() - begun
rows = json.loads(sys.argv[2])
taken = []
for row in rows * 40:
    begun = time.perf_counter()
    predictor.predict(row)
    taken.append(time.perf_counter() - begun)
print(json.dumps({"load_s": round(loaded, 2), "one_row_ms": round(1000 * statistics.median(taken[len(rows):]), 3)}))
"""
"""Loads a model and predicts rows one by one; the first time that a value occurs is not counted."""


def quick_start(folder: Path) -> Path:
    """Exports a model of the quick start's size (7, 6 and 1 columns of three fields), and returns its folder."""
    data = prepare(Planted(), folder / "planted")
    full = DCNv2().build(data.schema.layout(16)).eval()
    widths = (7, 6, 1, 0, 0, 0)
    mask = Mask(full.layout, tuple(tuple(range(width)) for width in widths))
    export(compact(full, mask), folder / "quick", data.encoder, mask)
    return folder / "quick"


def one_row(model: Path, checkout: Path) -> dict[str, float]:
    """Returns seconds to import and load a model, and median milliseconds of one row through `Predictor`."""
    rows = [{"user": i, "item": i, "city": i % 60} for i in range(1, 50)]
    command = [sys.executable, "-c", ONE_ROW, str(model), json.dumps(rows)]
    found = subprocess.run(command, capture_output=True, text=True, check=True, env=environment(checkout))
    numbers: dict[str, float] = json.loads(found.stdout)
    return numbers


def environment(checkout: Path) -> dict[str, str]:
    """Returns the environment in which Python imports the library from a checkout."""
    return {**os.environ, "PYTHONPATH": str(checkout.resolve() / "src")}


def predict(model: Path, raw: Path, out: Path, checkout: Path) -> dict[str, float]:
    """Predicts a file with the code of a checkout, in a process of its own, and returns its cost."""
    started = time.perf_counter()
    command = [sys.executable, "-m", "fieldwise", "predict", str(model), str(raw), "-o", str(out)]
    process = subprocess.Popen(command, env=environment(checkout))
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - started
    assert status == 0
    rows = pq.read_metadata(out).num_rows
    cpu, peak = usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024
    return {
        "wall_s": round(wall, 1), "rows_per_s": round(rows / wall), "cpu_s": round(cpu, 1), "peak_mib": round(peak, 1)
    }  # fmt: skip


def main() -> None:
    """Makes rows and models, predicts in turns, and writes the results to a JSON file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--folder", type=Path, help="folder to work in; existing rows and models are reused")
    parser.add_argument("--before", type=Path, help="a checkout of an earlier commit, measured in turns with this one")
    parser.add_argument("--rounds", type=int, default=1)
    given = parser.parse_args()
    checkouts = {"now": HERE.parent, **({"before": given.before} if given.before else {})}
    with tempfile.TemporaryDirectory() as name:
        folder = given.folder or Path(name)
        folder.mkdir(exist_ok=True)
        raw, model, quick = folder / f"rows-{given.rows}.parquet", folder / "model", folder / "quick"
        if not raw.exists():
            make_rows(raw, given.rows)
        if not model.exists():
            make_model(folder)
        if not quick.exists():
            quick_start(folder)
        before, found = os.getloadavg()[0], {}
        for _ in range(given.rounds):
            for which, checkout in checkouts.items():
                cost = predict(model, raw, folder / f"{which}.parquet", checkout) | one_row(quick, checkout)
                print(which, cost, flush=True)
                for key, value in cost.items():
                    found.setdefault(which, {}).setdefault(key, []).append(value)
        medians = {
            which: {key: statistics.median(each) for key, each in costs.items()} for which, costs in found.items()
        }
        if given.before:
            assert pq.read_table(folder / "now.parquet").equals(pq.read_table(folder / "before.parquet")), "other bits"
            medians["ratio"] = {
                k: round(medians["before"][k] / medians["now"][k], 2) for k in ("wall_s", "cpu_s", "one_row_ms")
            }
        info = json.loads((model / "model.json").read_text())
        record = {
            "rows": given.rows,
            "raw_bytes": raw.stat().st_size,
            "rounds": given.rounds,
            **medians.pop("now"),
            **medians,
            "model": {"size": info["size"], "bytes": sum(p.stat().st_size for p in model.iterdir())},
            "load_before": round(before, 1),
            "machine": {"cores": os.cpu_count(), "cpu": platform.machine(), "python": platform.python_version()},
            "versions": {name: version(name) for name in ("pyarrow", "torch")},
        }
        path = HERE / "results" / f"predict-{given.rows}.json"
        path.write_text(json.dumps(record, indent=1) + "\n")
        print(json.dumps(record, indent=1))


if __name__ == "__main__":
    main()
