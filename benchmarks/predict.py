"""Measures rows per second and peak memory of `fieldwise predict` on many rows, from Parquet to Parquet.

    python benchmarks/predict.py --rows 10000000

The rows are shaped like Criteo's (benchmarks/criteo_like.py). The model is a DCN-V2 over vocabularies of the first
million rows with a random quarter of the columns; its weights are not trained, which does not affect the cost. The
prediction runs in a separate process; time is its wall time, imports included, memory its peak resident set.
"""

import argparse
import json
import os
import platform
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
from fieldwise.core.select import select
from fieldwise.data.criteo import Criteo
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
    data = prepare(Criteo(raw=folder / "rows.txt"), folder / "data")
    full = DCNv2().build(data.schema.layout(16)).eval()
    scores = np.random.default_rng(0).random(full.layout.columns)
    mask = select(scores, full.layout, Budget.percent(25, "columns"))
    export(compact(full, mask), folder / "model", data.encoder, mask)
    return folder / "model"


def main() -> None:
    """Makes rows and model, predicts, and writes the results to a JSON file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--folder", type=Path, help="folder to work in; existing rows and model are reused")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = given.folder or Path(name)
        folder.mkdir(exist_ok=True)
        raw, model, out = folder / f"rows-{given.rows}.parquet", folder / "model", folder / "out.parquet"
        if not raw.exists():
            make_rows(raw, given.rows)
        if not model.exists():
            make_model(folder)
        before, started = os.getloadavg()[0], time.perf_counter()
        command = [str(Path(sys.executable).with_name("fieldwise")), "predict", str(model), str(raw), "-o", str(out)]
        process = subprocess.Popen(command)
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - started
        assert status == 0
        assert pq.read_metadata(out).num_rows == given.rows
        info = json.loads((model / "model.json").read_text())
        record = {
            "rows": given.rows,
            "raw_bytes": raw.stat().st_size,
            "wall_s": round(wall, 1),
            "rows_per_s": round(given.rows / wall),
            "cpu_s": round(usage.ru_utime + usage.ru_stime, 1),
            "peak_mib": round(usage.ru_maxrss / 1024, 1),
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
