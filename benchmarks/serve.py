"""Measures serving of a Criteo-shaped model (39 fields, a million rows, width 16), full and with 25% of its columns.

    python benchmarks/serve.py

The fields' cardinalities are distributed like Criteo's; the kept columns are random, so widths are mixed. Weights are
not trained, which does not affect the cost. The compact model is measured in float32 and, next to it, in other stored
types. The numbers are those of `fieldwise bench-serve`, on one core.
"""

import argparse
import json
import os
import platform
import tempfile
from importlib.metadata import version
from pathlib import Path

import numpy as np
from criteo_like import CARDINALITIES
from rich.console import Console

from fieldwise.bench.serve import bench
from fieldwise.cli.console import table
from fieldwise.core.budget import Budget
from fieldwise.core.schema import Field, Schema
from fieldwise.core.select import select
from fieldwise.core.store import Store
from fieldwise.exports.folder import export
from fieldwise.models.compact import compact
from fieldwise.models.dcnv2 import DCNv2
from fieldwise.reports.serving import HEADS, serving_rows

HERE = Path(__file__).parent
ROWS = 1_000_000


def schema() -> Schema:
    """Returns 13 binned fields of 100 ids and Criteo's 26 text fields, limited so that all have a million ids."""
    low, high = 0, max(CARDINALITIES)
    while low < high:  # bisects for the largest limit with at most a million ids
        middle = (low + high + 1) // 2
        fits = sum(min(count, middle) for count in CARDINALITIES) <= ROWS - 1_300
        low, high = (middle, high) if fits else (low, middle - 1)
    numbers = [Field(f"I{j + 1}", 100) for j in range(13)]
    return Schema((*numbers, *(Field(f"C{j + 1}", min(count, low)) for j, count in enumerate(CARDINALITIES))))


def main() -> None:
    """Builds the models, measures them, and writes the results to a JSON file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument(
        "--stores", nargs="*", default=["float16", "int8", "int4"], help="also the compact model in these"
    )
    parser.add_argument("--out", type=Path, default=HERE / "results" / "serve.json")
    given = parser.parse_args()
    fields = schema()
    full = DCNv2().build(fields.layout(16)).eval()
    scores = np.random.default_rng(0).random(full.layout.columns)
    mask = select(scores, full.layout, Budget.percent(25, "columns"))
    with tempfile.TemporaryDirectory() as folder:
        export(compact(full, mask), folder, mask=mask)
        before = os.getloadavg()[0]
        found = bench(Path(folder), seconds=given.seconds, say=print, stores=[Store.parse(s) for s in given.stores])
    table(Console(width=120), "ids to probabilities, one core: MiB, p50 / p99 ms", HEADS, serving_rows(found.to_json()))
    record = {
        "rows": sum(fields.cardinalities),
        "columns": {"full": full.layout.columns, "compact": mask.columns},
        "numbers": {"full": full.layout.params, "compact": mask.params},
        **found.to_json(),
        "load_before": round(before, 1),
        "machine": {"cores": os.cpu_count(), "cpu": platform.machine(), "python": platform.python_version()},
        "versions": {name: version(name) for name in ("onnxruntime", "torch")},
    }
    given.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
