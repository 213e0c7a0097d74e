"""Measures the default search against trivial answers at equal stored bytes, in int8 and int4.

    python benchmarks/equal_bytes.py runs/ml-ids --out runs/equal.jsonl --jobs 20 --device cuda --minutes 6

DATASET is a folder of `fieldwise prepare --set data.tiers=0`, and DATASET-tiers one of the same rows with tiers, the
default. A unit is one method, one model and one seed. That of `uniform` pretrains the full model on rows without tiers,
stores it in every type, and retrains `uniform` at each share of the full float32 bytes, in int8 and int4; that of the
default search pretrains on rows with tiers, and retrains what it finds at the same bytes. Each unit appends its rows to
the output when it ends, and the same command skips what is there.
"""

import argparse
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from resumable import read, run

if TYPE_CHECKING:
    from fieldwise.core.store import Kind

MODELS: Final = ("autoint", "fm", "deepfm", "dcnv2")
STORES: Final[tuple["Kind", ...]] = ("int8", "int4")
SHARES: Final = (8, 16, 32, 64)
"""The full float32 bytes are divided by these."""


@dataclass(frozen=True)
class Unit:
    """One method, one model and one seed."""

    dataset: Path
    method: str
    model: str
    seed: int
    device: str


def rows_of(unit: Unit) -> list[dict[str, Any]]:
    """Trains and measures a unit."""
    import torch

    from fieldwise.core.budget import Budget
    from fieldwise.core.registry import resolve
    from fieldwise.core.store import KINDS, Store
    from fieldwise.data.store import Dataset
    from fieldwise.models import MODELS as KNOWN
    from fieldwise.models.stored import stored, stored_bytes
    from fieldwise.searches import SEARCHES
    from fieldwise.searches.search import search
    from fieldwise.train.evaluate import evaluate
    from fieldwise.train.stages import Retrain, pretrain, retrain, stored_for
    from fieldwise.train.task import Task

    torch.set_num_threads(1)
    started, rows = time.perf_counter(), list[dict[str, Any]]()
    uniform, base = unit.method == "uniform", resolve("model", KNOWN, unit.model)()
    whole = stored_bytes(base.new(Dataset.open(unit.dataset).schema)).per_id
    data = Dataset.open(unit.dataset if uniform else unit.dataset.with_name(f"{unit.dataset.name}-tiers"))

    def add(method: str, share: int, kind: str, found: Any, seconds: float) -> None:
        rows.append({
            "model": unit.model, "seed": unit.seed, "method": method, "share": share, "store": kind,
            "bytes": stored_bytes(found).per_id, "auc": evaluate(found, data.test).auc,
            "valid": evaluate(found, data.valid).auc, "seconds": round(seconds, 2),
        })  # fmt: skip

    task = Task.of(data, base, unit.seed, unit.device)  # type: ignore[arg-type]
    first = pretrain(task)
    task = task.starting_from(first)
    for kind in KINDS if uniform else KINDS[:1]:
        small = first.model if kind == "float32" else stored(first.model, Store(kind))
        add("full" if uniform else "full, tiers", 1, kind, small, first.seconds)
    for share in SHARES:
        for kind in STORES:
            most = int(Budget.bytes(1, kind).costs(task.layout, task.linear).sum())
            budget = Budget.bytes(min(whole // share, most), kind)
            found = search(task, resolve("search", SEARCHES, unit.method)(), budget)
            trained = retrain(task, found.model, stored_for(Retrain(), budget))
            add(unit.method, share, kind, trained.model, found.seconds + trained.seconds)
    return [{**row, "unit": round(time.perf_counter() - started, 1)} for row in rows]


def units(given: argparse.Namespace) -> Iterator[Unit]:
    """The units that the output lacks, seed by seed."""
    from fieldwise.searches import DEFAULT

    done = {(row["method"], row["model"], row["seed"]) for row in read(given.out)}
    for seed in range(given.seeds):
        for model in given.models:
            for method in ("uniform", DEFAULT):
                if (method, model, seed) not in done:
                    yield Unit(given.dataset, method, model, seed, given.device)


def main() -> None:
    """Runs the missing units in parallel processes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset", type=Path)
    parser.add_argument("--models", nargs="+", default=MODELS, choices=MODELS)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--device", default="auto", choices=["auto", "cpu", "cuda"])
    parser.add_argument("--minutes", type=float, default=1e9, help="no unit starts after this time")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    for unit, rows, left in run(rows_of, units(given), given.out, given.jobs, given.minutes):
        print(f"{unit.method}, {unit.model}, seed {unit.seed}: {rows[-1]['unit']} s; {left} left", flush=True)


if __name__ == "__main__":
    main()
