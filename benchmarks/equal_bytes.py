"""Measures the default search against trivial answers at equal stored bytes, in few bits.

    python benchmarks/equal_bytes.py runs/ml-ids --out runs/equal.jsonl --jobs 20 --device cuda --minutes 6

DATASET is a folder of `fieldwise prepare`. A unit is one model and one seed. It pretrains the full model, stores it in
every type, and retrains `uniform` on rows without tiers and what the default search finds on rows with tiers, at each
share of the full float32 bytes in one stored type; where the default mixes int4 and int8, `uniform` has int4. With
`--plain` it retrains `uniform` only, and plainly. Each unit appends its rows to the output when it ends, and the same
command skips the shares that are there.
"""

import time
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from resumable import Unit, options, read, run

if TYPE_CHECKING:
    from fieldwise.core.budget import Mixed
    from fieldwise.core.store import Kind

MODELS: Final = ("autoint", "fm", "deepfm", "dcnv2")  # the slowest first
SHARES: Final = (8, 16, 32, 64)
"""The full float32 bytes are divided by these."""


@dataclass(frozen=True)
class Cell(Unit):
    """One model, one seed and one stored type."""

    store: "Kind | Mixed"
    shares: tuple[int, ...]
    plain: bool


def named(method: str, plain: bool) -> str:
    """The method in the output."""
    return f"plain {method}" if plain else method


def rows_of(unit: Cell) -> list[dict[str, Any]]:
    """Trains and measures a unit."""
    from fieldwise.core.budget import Budget
    from fieldwise.core.registry import resolve
    from fieldwise.core.store import KINDS, MIXED, Store
    from fieldwise.models.stored import stored, stored_bytes
    from fieldwise.searches import DEFAULT, SEARCHES
    from fieldwise.searches.search import search
    from fieldwise.train.evaluate import evaluate
    from fieldwise.train.pretraining import Pretrain
    from fieldwise.train.retraining import Retrain, retrain, stored_for

    started, rows = time.perf_counter(), list[dict[str, Any]]()
    first, cases = unit.cases(Pretrain(average=0) if unit.plain else Pretrain())
    settings = Retrain(schedule="constant", l2=0, average=0) if unit.plain else Retrain()
    entrants = [("uniform", False)] if unit.plain else [("uniform", False), (DEFAULT, True)]
    whole = stored_bytes(unit.base().new(cases[False].task.schema)).per_id

    def add(method: str, share: int, kind: str, found: Any, seconds: float, tiers: bool = False) -> None:
        rows.append({
            "model": unit.model, "seed": unit.seed, "method": named(method, unit.plain), "share": share,
            "store": kind, "bytes": stored_bytes(found).per_id, "auc": evaluate(found, cases[tiers].test).auc,
            "valid": evaluate(found, cases[tiers].task.valid).auc, "seconds": round(seconds, 2),
            "pretraining": round(first.seconds, 2),
        })  # fmt: skip

    for kind in KINDS:
        add("full", 1, kind, first.model if kind == "float32" else stored(first.model, Store(kind)), first.seconds)
    for share in unit.shares:
        for method, tiers in entrants:
            task = cases[tiers].task
            store: Kind | Mixed = "int4" if unit.store == MIXED and method != DEFAULT else unit.store
            most = int(Budget.bytes(1, store).costs(task.layout, task.linear).sum())
            budget = Budget.bytes(min(whole // share, most), store)
            found = search(task, resolve("search", SEARCHES, method)(), budget)
            trained = retrain(task, found.model, stored_for(settings, budget, found.mask))
            add(method, share, store, trained.model, found.seconds + trained.seconds, tiers)
    return [{**row, "unit": round(time.perf_counter() - started, 1)} for row in rows]


def main() -> None:
    """Runs the missing units in parallel processes, seed by seed."""
    from fieldwise.core.store import KINDS, MIXED
    from fieldwise.searches import DEFAULT

    parser = options(__doc__, seeds=10, models=MODELS)
    parser.add_argument("dataset", type=Path)
    parser.add_argument("--store", default=MIXED, choices=[*KINDS, MIXED])
    parser.add_argument("--shares", nargs="+", type=int, default=SHARES)
    plain_help = "uniform only: no averages of weights, no squares of tables, a constant rate until early stopping"
    parser.add_argument("--plain", action="store_true", help=plain_help)
    given = parser.parse_args()
    done = {(row["model"], row["seed"], row["store"], row["method"], row["share"]) for row in read(given.out)}
    units = []
    for seed, model in product(given.seeds, given.models):
        store = "int4" if given.plain and given.store == MIXED else given.store
        last = (model, seed, store, named("uniform" if given.plain else DEFAULT, given.plain))
        shares = tuple(share for share in given.shares if (*last, share) not in done)
        if shares:
            units.append(Cell(given.dataset, model, seed, given.device, given.store, shares, given.plain))
    for unit, rows, left in run(rows_of, units, given.out, given.jobs, given.minutes):
        print(f"{unit.model}, seed {unit.seed}: {rows[-1]['unit']} s; {left} left", flush=True)


if __name__ == "__main__":
    main()
