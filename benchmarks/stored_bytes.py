"""Measures test AUC over stored bytes: full, uniform and ham in float32, float16, int8 and int4.

    python benchmarks/stored_bytes.py DATASET --out runs/bytes.jsonl --jobs 16 --device cuda
    python benchmarks/stored_bytes.py DATASET --models fm --methods ham --seeds 2 --fractions 0.25 --out runs/few.jsonl

DATASET is a folder of `fieldwise prepare`. A unit is one model and one seed: it pretrains once, searches once per
method and fraction of the numbers in tables and first-order weights, and retrains once in float32 and once for int4.
float16 and int8 are the float32 result, rounded. Widths are therefore equal in all types; scales come on top. Each unit
appends its rows to the output when it ends, and the same command skips what is there.
"""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from resumable import Unit, options, run_missing

METHODS: Final = ("uniform", "ham")
FRACTIONS: Final = (1.0, 0.5, 0.25, 0.125, 0.0625, 0.03125, 0.015625)
"""Of the numbers of the full model; 1 is the full model, retrained like the others."""
LEAST: Final = 1 / 64
"""Smallest share of the full float32 bytes that is measured."""
BITS: Final = {"float32": 32, "float16": 16, "int8": 8, "int4": 4}


@dataclass(frozen=True)
class Curve(Unit):
    """One model and one seed."""

    fractions: tuple[float, ...]
    methods: tuple[str, ...]
    schedule: str

    @property
    def key(self) -> list[Any]:
        """What tells units apart in the output."""
        return [self.model, self.seed]


def rows_of(unit: Curve) -> list[dict[str, Any]]:
    """Trains and measures a unit."""
    from fieldwise.core.budget import Budget
    from fieldwise.core.store import KINDS, Store
    from fieldwise.data.store import Dataset
    from fieldwise.models.model import CTRModel
    from fieldwise.models.stored import StoredModel, stored, stored_bytes
    from fieldwise.searches import HAM
    from fieldwise.searches.search import search
    from fieldwise.searches.uniform import Uniform
    from fieldwise.train.evaluate import evaluate
    from fieldwise.train.pretraining import Pretrain, pretrain
    from fieldwise.train.retraining import Retrain, retrain

    started, data = time.perf_counter(), Dataset.open(unit.dataset)
    task = unit.task(data)
    first = pretrain(task, Pretrain(average=0))  # int4 has no averages, so float32 has none either
    full, task = first.model, task.starting_from(first)
    rows: list[dict[str, Any]] = []
    searches = {"uniform": Uniform(), "ham": HAM(start="searched")}
    plain = Retrain(schedule=unit.schedule, average=0, l2=0 if unit.schedule == "constant" else "auto")

    def add(method: str, fraction: float, store: str, found: CTRModel | StoredModel) -> None:
        sizes, test = stored_bytes(found), evaluate(found, data.test)
        rows.append(
            {
                "model": unit.model,
                "seed": unit.seed,
                "method": method,
                "fraction": fraction,
                "store": store,
                "numbers": found.size().embedding + found.size().first_order,
                "bytes": sizes.per_id,
                "dense": sizes.dense,
                "widths": list(found.layout.widths),
                "auc": test.auc,
                "log_loss": test.log_loss,
                "valid": evaluate(found, task.valid).auc,
            }
        )

    for kind in KINDS:
        add("full", 1.0, kind, full if kind == "float32" else stored(full, Store(kind)))
    for fraction in unit.fractions:
        for name in unit.methods:
            if fraction == 1.0 and name == "ham":
                continue
            small = search(task, searches[name], Budget(100 * fraction, "bytes", share=True)).model
            trained = retrain(task, small, plain).model
            assert isinstance(trained, CTRModel)
            for kind in KINDS:
                if fraction * BITS[kind] / 32 < LEAST:
                    continue
                if kind == "int4":
                    add(name, fraction, "int4 after", stored(trained, Store(kind)))
                    add(
                        name,
                        fraction,
                        kind,
                        retrain(task, small, plain.model_copy(update={"store": Store(kind)})).model,
                    )
                else:
                    add(name, fraction, kind, trained if kind == "float32" else stored(trained, Store(kind)))
    return [{**row, "seconds": round(time.perf_counter() - started, 1)} for row in rows]


def main() -> None:
    """Runs the missing units in parallel processes, seed by seed."""
    parser = options(__doc__, seeds=10)
    parser.add_argument("dataset", type=Path)
    parser.add_argument("--fractions", nargs="+", type=float, default=FRACTIONS)
    parser.add_argument("--methods", nargs="+", default=METHODS, choices=METHODS)
    parser.add_argument("--schedule", default="decay", choices=["decay", "constant"], help="of the retraining")
    given = parser.parse_args()
    more = tuple(given.fractions), tuple(given.methods), given.schedule
    units = [Curve(given.dataset, m, seed, given.device, *more) for seed in given.seeds for m in given.models]
    for unit, rows, left in run_missing(rows_of, units, given, lambda row: [row["model"], row["seed"]]):
        print(f"{unit.model}, seed {unit.seed}: {rows[-1]['seconds']} s; {left} left", flush=True)


if __name__ == "__main__":
    main()
