"""Compares the full model on MovieLens-1M as the built-in source with the same rows as a plain CSV with inferred kinds.

    python benchmarks/inferred_kinds.py ml-1m.zip --out benchmarks/results/inferred_kinds.json

The CSV has no ratings of 3, the columns of the built-in source, and title and timestamp; no kind is set. Both splits
hash user and movie, so they hold the same rows.
"""

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1]))  # the tables of the tests

import torch

import fieldwise as fw
from tests.data import public_tables


def trained(data: fw.Dataset, model: Any, seed: int) -> dict[str, Any]:
    """Pretrains the full model and returns its test metrics."""
    task = fw.Task.of(data, model, seed=seed)
    result = fw.pretrain(task)
    metrics = fw.evaluate(result.model.cpu(), data.test)
    best = max(epoch.auc for epoch in result.history)
    return {"test_auc": metrics.auc, "test_log_loss": metrics.log_loss, "valid_auc": best, "seconds": result.seconds}


def main() -> None:
    """Prepares both, trains both with every seed, and writes the metrics."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("raw", type=Path, help="GroupLens' ml-1m.zip.")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    split = fw.RandomSplit(key=("user", "movie"))
    with tempfile.TemporaryDirectory() as folder:
        plain = Path(folder) / "movielens-1m.csv"
        public_tables.movielens(given.raw.parent, plain)
        sources = {
            "built-in": fw.data.MovieLens1M(raw=given.raw),
            "plain CSV": fw.data.Table(raw=plain, label="click"),
        }
        record: dict[str, Any] = {"torch": torch.__version__, "load": os.getloadavg()[0], "model": "dcnv2"}
        for name, source in sources.items():
            data = fw.prepare(source, Path(folder) / name.replace(" ", "-"), split)
            kinds = {field.name: field.rule.kind for field in data.encoder.fields}
            record[name] = {
                "rows": data.info["rows"],
                "fields": dict(zip(data.schema.names, data.schema.cardinalities, strict=True)),
                "kinds": kinds,
                "seeds": {seed: trained(data, fw.models.DCNv2(), seed) for seed in given.seeds},
            }
            print(name, json.dumps(record[name]), flush=True)
    given.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
