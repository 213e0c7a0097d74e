"""Trains DCN-V2 on few rows with several batch sizes: the measurements behind `batch = "auto"`.

    python benchmarks/batch_size.py --data DATA --out benchmarks/results/batch_size.json

DATA holds ml-1m.zip, criteo_sample.txt.gz and avazu_sample.csv.gz. Of each, 16,000 training and 2,000 validation rows
are drawn at random (other rows for each seed), and 50,000 test rows at most; ids are those of all training rows. With
`--clicks 80`, that many of the 18,000 rows are clicks. The epoch with the best validation AUC counts, patience 2.
"""

import argparse
import json
import os
import statistics
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray

import fieldwise as fw
from fieldwise.core.records import Metrics
from fieldwise.data.store import Split

TRAIN, VALID, TEST = 16_000, 2_000, 50_000
BATCHES: Final = (2048, 1024, 512, 256, 128, 64)


def sources(data: Path) -> dict[str, Any]:
    """Returns the sources whose files are there."""
    files = {"movielens-1m": "ml-1m.zip", "criteo": "criteo_sample.txt.gz", "avazu": "avazu_sample.csv.gz"}
    kinds = {"movielens-1m": fw.data.MovieLens1M, "criteo": fw.data.Criteo, "avazu": fw.data.Avazu}
    return {name: kinds[name](raw=data / file) for name, file in files.items() if (data / file).exists()}


def drawn(split: Any, rows: int, draw: np.random.Generator, clicks: int | None = None) -> Split:
    """Returns random rows; with `clicks`, exactly that many of them are clicks."""
    labels = np.asarray(split.labels)
    if clicks is None:
        chosen: NDArray[np.int64] = draw.permutation(len(labels))[:rows]
    else:
        positive, negative = (draw.permutation(np.flatnonzero(labels == value)) for value in (1, 0))
        chosen = draw.permutation(np.concatenate([positive[:clicks], negative[: rows - clicks]]))
    chosen = np.sort(chosen)
    return Split(np.asarray(split.ids)[chosen], labels[chosen])


def trained(data: fw.Dataset, batch: int, seed: int, clicks: int | None) -> Metrics:
    """Trains on drawn rows, and returns the test metrics."""
    draw = np.random.default_rng(seed)
    few = None if clicks is None else round(clicks * VALID / (TRAIN + VALID))
    train = drawn(data.train, TRAIN, draw, None if clicks is None or few is None else clicks - few)
    valid = drawn(data.valid, VALID, draw, few)
    test = drawn(data.test, min(TEST, len(data.test)), np.random.default_rng(0))
    task = fw.Task(data.schema, train, valid, fw.models.DCNv2(), seed, "cpu")
    found = fw.pretrain(task, fw.Pretrain(batch=batch, epochs=30, patience=2))
    return fw.evaluate(found.model, test)


def main() -> None:
    """Trains every batch size with every seed on every source."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--only", nargs="*", help="Names of sources; default: all.")
    parser.add_argument("--batches", type=int, nargs="+", default=list(BATCHES))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--clicks", type=int, help="Clicks among the 18,000 rows; default: as in the data.")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    record: dict[str, Any] = {
        "torch": torch.__version__, "fieldwise": version("fieldwise"), "load": os.getloadavg()[0],
        "clicks": given.clicks, "seeds": given.seeds, "rows": [TRAIN, VALID, TEST], "sources": {},
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        for name, source in sources(given.data).items():
            if given.only and name not in given.only:
                continue
            data = fw.prepare(source, Path(folder) / name)
            found = record["sources"][name] = {}
            for batch in given.batches:
                tests = [trained(data, batch, seed, given.clicks) for seed in given.seeds]
                aucs, losses = [test.auc for test in tests], [test.log_loss for test in tests]
                found[batch] = {"auc": statistics.fmean(aucs), "log_loss": statistics.fmean(losses), "aucs": aucs}
                print(name, batch, f"{found[batch]['auc']:.4f} {found[batch]['log_loss']:.3f}", flush=True)
                given.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
