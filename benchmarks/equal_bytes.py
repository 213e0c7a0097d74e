"""Measures the default search against trivial answers at equal stored bytes, in int8 and int4.

    python benchmarks/equal_bytes.py runs/ml-ids --out runs/equal.jsonl --jobs 20 --device cuda --minutes 6

DATASET is a folder of `fieldwise prepare --set data.tiers=0`, and DATASET-tiers one of the same rows with tiers, the
default. A unit is one method, one model and one seed. That of `uniform` pretrains the full model on rows without tiers,
stores it in every type, and retrains `uniform` at each share of the full float32 bytes, in int8 and int4; that of the
default search pretrains on rows with tiers, and retrains what it finds at the same bytes. Each unit appends its rows to
the output when it ends, and the same command skips what is there.
"""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from resumable import Unit, options, run_missing

if TYPE_CHECKING:
    from fieldwise.core.store import Kind

MODELS: Final = ("autoint", "fm", "deepfm", "dcnv2")  # the slowest first
STORES: Final[tuple["Kind", ...]] = ("int8", "int4")
SHARES: Final = (8, 16, 32, 64)
"""The full float32 bytes are divided by these."""


@dataclass(frozen=True)
class Cell(Unit):
    """One method, one model and one seed."""

    method: str

    @property
    def key(self) -> list[Any]:
        """What tells units apart in the output."""
        return [self.method, self.model, self.seed]


def rows_of(unit: Cell) -> list[dict[str, Any]]:
    """Trains and measures a unit."""
    from fieldwise.core.budget import Budget
    from fieldwise.core.registry import resolve
    from fieldwise.core.store import KINDS, Store
    from fieldwise.data.store import Dataset
    from fieldwise.models.stored import stored, stored_bytes
    from fieldwise.searches import SEARCHES
    from fieldwise.searches.search import search
    from fieldwise.train.evaluate import evaluate
    from fieldwise.train.pretraining import pretrain
    from fieldwise.train.retraining import Retrain, retrain, stored_for

    started, rows = time.perf_counter(), list[dict[str, Any]]()
    uniform = unit.method == "uniform"
    whole = stored_bytes(unit.base().new(Dataset.open(unit.dataset).schema)).per_id
    data = Dataset.open(unit.dataset if uniform else unit.dataset.with_name(f"{unit.dataset.name}-tiers"))

    def add(method: str, share: int, kind: str, found: Any, seconds: float) -> None:
        rows.append({
            "model": unit.model, "seed": unit.seed, "method": method, "share": share, "store": kind,
            "bytes": stored_bytes(found).per_id, "auc": evaluate(found, data.test).auc,
            "valid": evaluate(found, data.valid).auc, "seconds": round(seconds, 2),
        })  # fmt: skip

    task = unit.task(data)
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


def main() -> None:
    """Runs the missing units in parallel processes, seed by seed."""
    from fieldwise.searches import DEFAULT

    parser = options(__doc__, seeds=10, models=MODELS)
    parser.add_argument("dataset", type=Path)
    given = parser.parse_args()
    units = [
        Cell(given.dataset, model, seed, given.device, method)
        for seed in given.seeds
        for model in given.models
        for method in ("uniform", DEFAULT)
    ]
    for unit, rows, left in run_missing(rows_of, units, given, lambda row: [row["method"], row["model"], row["seed"]]):
        print(f"{unit.method}, {unit.model}, seed {unit.seed}: {rows[-1]['unit']} s; {left} left", flush=True)


if __name__ == "__main__":
    main()
