"""Measures searches and retrainings over several datasets at equal parameters: accuracy beside cost.

    python benchmarks/robust.py runs/criteo runs/avazu --out runs/robust.jsonl --jobs 20 --device cuda --minutes 8
    python benchmarks/robust.py --out runs/robust.jsonl

Datasets are folders of `fieldwise prepare`. A unit is a dataset, a model and a seed: it pretrains once, and for every
fraction of the parameters and every search it retrains the result with each schedule. Each unit appends its rows to the
output when it ends, and the same command skips what is there. A folder NAME-tiers holds the rows of NAME with tiers
(`prepare` makes them by default; NAME needs `--set data.tiers=0`). At the end, and without datasets at once, a summary:
per search, schedule and tiers the difference of test AUC to `uniform` with the constant schedule and without tiers,
paired by seed; the cost is seconds of search and retraining over those of pretraining.
"""

import statistics
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from resumable import Unit, options, read, run_missing

FRACTIONS: Final = (0.25, 0.125, 0.03)
METHODS: Final = ("uniform", "elimination", "ham")
SCHEDULES: Final = {
    "constant": {"schedule": "constant", "l2": 0.0},
    "decay": {},
}
TIERS: Final = "-tiers"
"""Ends the name of a dataset with tiers."""
BASELINE: Final = ("uniform", "constant", "")


@dataclass(frozen=True)
class Cell(Unit):
    """One dataset, model and seed."""

    fractions: tuple[float, ...]
    methods: tuple[str, ...]
    schedules: tuple[str, ...]
    harmful: str


def rows_of(unit: Cell) -> list[dict[str, Any]]:
    """Trains and measures a unit."""
    from fieldwise.core.budget import Budget
    from fieldwise.core.registry import resolve
    from fieldwise.data.store import Dataset
    from fieldwise.searches import SEARCHES
    from fieldwise.searches.search import search
    from fieldwise.train.evaluate import evaluate
    from fieldwise.train.pretraining import Pretrain, pretrain
    from fieldwise.train.retraining import Retrain, retrain
    from fieldwise.train.trained import Trained

    data = Dataset.open(unit.dataset)
    task = unit.task(data)
    first = pretrain(task, Pretrain(harmful=unit.harmful))  # type: ignore[arg-type]
    task, rows = task.starting_from(first), list[dict[str, Any]]()

    def add(method: str, fraction: float, schedule: str, trained: Trained[Any], seconds: float, **more: object) -> None:
        test = evaluate(trained.model, data.test)
        rows.append(
            {
                "unit": unit.key,
                "method": method,
                "fraction": fraction,
                "schedule": schedule,
                "auc": test.auc,
                "log_loss": test.log_loss,
                "valid": [round(epoch.auc, 5) for epoch in trained.history],
                "epochs": len(trained.history) - 1,
                "seconds": seconds,
                **more,
            }
        )

    add("full", 1.0, "", first, first.seconds)
    for fraction in unit.fractions:
        for method in unit.methods:
            found = search(task, resolve("search", SEARCHES, method)(), Budget.percent(100 * fraction))
            for schedule in unit.schedules:
                trained = retrain(task, found.model, Retrain(**SCHEDULES[schedule]))
                cost = (found.seconds + trained.seconds) / first.seconds
                add(
                    method, fraction, schedule, trained, found.seconds + trained.seconds,
                    cost=cost, search_epochs=found.summary.epochs, widths=list(found.mask.widths),
                )  # fmt: skip
    return rows


def summary(rows: Iterable[dict[str, Any]]) -> list[str]:
    """One line per search and schedule: the mean over cells of the paired difference to the baseline, and the cost."""
    cells: dict[tuple[Any, ...], dict[tuple[str, str, str], list[dict[str, Any]]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for row in rows:
        if row["method"] != "full":
            data, model, _ = row["unit"]
            tiers = "tiers" if data.endswith(TIERS) else ""
            cells[data.removesuffix(TIERS), model, row["fraction"]][row["method"], row["schedule"], tiers].append(row)
    lines = []
    for entrant in sorted({entrant for cell in cells.values() for entrant in cell}):
        differences, costs = [], []
        for cell in cells.values():
            known = {row["unit"][2]: row["auc"] for row in cell[BASELINE]}
            pairs = [row["auc"] - known[row["unit"][2]] for row in cell[entrant] if row["unit"][2] in known]
            if pairs:
                differences.append(statistics.mean(pairs))
                costs += [row["cost"] for row in cell[entrant]]
        if differences:
            above = sum(difference > 0 for difference in differences)
            lines.append(
                f"{', '.join(filter(None, entrant))}: {statistics.mean(differences):+.4f}, above in {above} of "
                f"{len(differences)} cells, worst {min(differences):+.4f}, cost {statistics.mean(costs):.2f} trainings"
            )
    return lines


def main() -> None:
    """Measures, or prints what was measured."""
    parser = options(__doc__, seeds=5)
    parser.add_argument("datasets", type=Path, nargs="*")
    parser.add_argument("--fractions", nargs="+", type=float, default=FRACTIONS)
    parser.add_argument("--methods", nargs="+", default=METHODS)
    parser.add_argument("--schedules", nargs="+", default=tuple(SCHEDULES), choices=tuple(SCHEDULES))
    parser.add_argument("--harmful", default="drop", choices=["drop", "keep"], help="[pretrain] harmful")
    given = parser.parse_args()
    more = *map(tuple, (given.fractions, given.methods, given.schedules)), given.harmful
    units = [Cell(d, m, s, given.device, *more) for s in given.seeds for d in given.datasets for m in given.models]
    for unit, _, left in run_missing(rows_of, units, given):
        print(*unit.key, f"{left} left", flush=True)
    print("\n".join(summary(read(given.out))))


if __name__ == "__main__":
    main()
