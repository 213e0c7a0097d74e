"""Measures the check for harmful fields: which it suspects, which it leaves out, and what that gains.

    python benchmarks/harmful.py runs/autoint/dataset runs/criteo/dataset --out runs/harmful.jsonl
    python benchmarks/harmful.py DATASET --models deepfm --seeds 10 --jobs 8 --device cuda --out runs/harmful.jsonl

DATASET is a folder of `fieldwise prepare`. A unit is one dataset, model and seed. It pretrains with all fields and
hides each field of many ids; if one is suspected, it pretrains again as a run does by default, which leaves out what is
harmful. Both models are tested; with `--columns`, also the result of the default search and retraining. `--rows` takes
that many evenly spaced training rows. Each unit appends a line to the output when it ends; the same command skips what
is there, and prints the table.
"""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from resumable import Unit, options, read, run_missing

HEADS: Final = ("dataset", "rows", "model", "seed", "hiding costs on train / valid rows", "suspected", "left out",
                "valid AUC", "without", "test AUC", "without", "compact")  # fmt: skip


@dataclass(frozen=True)
class Check(Unit):
    """One dataset, model and seed."""

    rows: int | None
    columns: int | None

    @property
    def key(self) -> list[Any]:
        """What tells units apart in the output."""
        return [self.dataset.parent.name if self.dataset.name == "dataset" else self.dataset.name, self.rows,
                self.model, self.seed]  # fmt: skip


def measured(unit: Check) -> list[dict[str, Any]]:
    """Trains and tests the models of a unit; returns one row."""
    from fieldwise.core.budget import Budget
    from fieldwise.core.registry import resolve
    from fieldwise.data.store import Dataset
    from fieldwise.searches import DEFAULT, SEARCHES
    from fieldwise.searches.search import search
    from fieldwise.train import harmful
    from fieldwise.train.evaluate import evaluate
    from fieldwise.train.pretraining import Pretrain, pretrain
    from fieldwise.train.retraining import retrain
    from fieldwise.train.task import Task

    started, data = time.perf_counter(), Dataset.open(unit.dataset)
    train = harmful.sample(data.train, min(len(data.train), unit.rows or len(data.train)))
    task = Task(data.schema, train, data.valid, unit.base(), unit.seed, unit.device)  # type: ignore[arg-type]
    full = pretrain(task, Pretrain(harmful="keep"))
    before = time.perf_counter()
    hidden = harmful.hidden_fields(full.model, train, data.valid)
    check = time.perf_counter() - before
    suspected = harmful.suspects(full.model, train, data.valid)
    found = {
        "unit": unit.key,
        "hidden": [[one.field, one.train, one.valid] for one in hidden],
        "suspected": [one.field for one in suspected],
        "valid": evaluate(full.model, data.valid).auc,
        "test": evaluate(full.model, data.test).auc,
        "check_share": check / full.seconds,
    }
    kept = full
    if suspected:
        kept = pretrain(task)
        found["harms"] = [harm.to_json() for harm in kept.harms]
        found["test_without"] = evaluate(kept.model, data.test).auc
        found["share"] = kept.seconds / full.seconds
    if unit.columns:
        task = task.starting_from(kept)
        small = search(task, resolve("search", SEARCHES, DEFAULT)(), Budget.columns(unit.columns))
        found["columns"] = unit.columns
        found["test_compact"] = evaluate(retrain(task, small.model).model, data.test).auc
    return [{**found, "seconds": time.perf_counter() - started}]


def row(found: dict[str, Any]) -> list[str]:
    """One line of the table."""
    harms = found.get("harms", [])
    largest = sorted(found["hidden"], key=lambda one: -one[1])[:4]
    left = [harm["field"] for harm in harms if harm["left_out"]]
    without = f"{harms[-1]['without_auc']:.4f}" if harms else ""
    return [
        *map(str, found["unit"]),
        "; ".join(f"{name} {train:.4f} / {valid:.4f}" for name, train, valid in largest),
        ", ".join(found["suspected"]),
        ", ".join(left),
        f"{found['valid']:.4f}",
        without,
        f"{found['test']:.4f}",
        f"{found['test_without']:.4f}" if left else "",
        f"{found['test_compact']:.4f}" if "test_compact" in found else "",
    ]


def main() -> None:
    """Runs the missing units in parallel processes, and prints all of the output as a table."""
    parser = options(__doc__, seeds=3, models=("deepfm", "dcnv2"))
    parser.add_argument("datasets", type=Path, nargs="+")
    parser.add_argument("--rows", type=int)
    parser.add_argument("--columns", type=int, help="budget of a search and a retraining, which are tested too")
    given = parser.parse_args()
    units = [
        Check(d, m, s, given.device, given.rows, given.columns)
        for s in given.seeds
        for m in given.models
        for d in given.datasets
    ]
    for _, rows, _ in run_missing(measured, units, given):
        print(" | ".join(row(rows[0])), f"| {rows[0]['seconds']:.0f} s", flush=True)
    print("\n| " + " | ".join(HEADS) + " |\n|" + "---|" * len(HEADS))
    for found in sorted(read(given.out), key=lambda one: [str(part) for part in one["unit"]]):
        print("| " + " | ".join(row(found)) + " |")


if __name__ == "__main__":
    main()
