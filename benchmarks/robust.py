"""Measures searches and retrainings over several datasets at equal parameters: accuracy beside cost.

    python benchmarks/robust.py runs/criteo runs/avazu --out runs/robust.jsonl --jobs 20 --device cuda --minutes 8
    python benchmarks/robust.py --out runs/robust.jsonl

Datasets are folders of `fieldwise prepare`; the parent folder `{seed}` stands for the seed, so that each has its own
split.
A unit is a dataset, a model and a seed: it pretrains once, and every entrant retrains what its search finds at each
fraction of the parameters. An entrant is SEARCH:SCHEDULE, whose rows have no tiers, or SEARCH:SCHEDULE:tiers; rows of
the output name the dataset NAME and NAME-tiers. Each unit appends its rows to the output when it ends, and the same
command skips what is there; a search that refuses a budget has a row with its message. At the end, and without datasets
at once, a summary: per entrant the difference of test AUC to `uniform` with the constant schedule and without tiers,
paired by seed; the cost is seconds of search and retraining over those of pretraining.
"""

import json
import statistics
from argparse import ArgumentTypeError
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, Final

from resumable import TIERS, Unit, options, read, run

FRACTIONS: Final = (0.25, 0.125, 0.03)
ENTRANTS: Final = ("uniform:constant", "uniform:decay", "elimination:decay:tiers")
SCHEDULES: Final = {
    "constant": {"schedule": "constant", "l2": 0.0, "average": 0.0},
    "decay": {},
}
BASELINE: Final = ("uniform", "constant", "")


@dataclass(frozen=True)
class Entrant:
    """A search, the schedule of its retraining, and whether its rows have tiers."""

    method: str
    schedule: str
    tiers: bool

    @classmethod
    def parse(cls, text: str) -> "Entrant":
        """SEARCH:SCHEDULE or SEARCH:SCHEDULE:tiers."""
        from fieldwise.searches import SEARCHES

        method, schedule, *tiers = text.split(":") if ":" in text else (text, "")
        if method not in SEARCHES or schedule not in SCHEDULES or tiers not in ([], ["tiers"]):
            raise ArgumentTypeError(f"got {text!r}, allowed: SEARCH:{'|'.join(SCHEDULES)} or SEARCH:SCHEDULE:tiers")
        return cls(method, schedule, bool(tiers))


@dataclass(frozen=True)
class Cell(Unit):
    """One dataset, model and seed."""

    fractions: tuple[float, ...]
    entrants: tuple[Entrant, ...]
    pretraining: dict[str, Any]


def rows_of(unit: Cell) -> list[dict[str, Any]]:
    """Trains and measures a unit."""
    from fieldwise.core.budget import Budget
    from fieldwise.core.errors import BudgetError
    from fieldwise.core.registry import resolve
    from fieldwise.searches import SEARCHES
    from fieldwise.searches.search import search
    from fieldwise.train.evaluate import evaluate
    from fieldwise.train.pretraining import Pretrain
    from fieldwise.train.retraining import Retrain, retrain

    (first, cases), rows = unit.cases(Pretrain(**unit.pretraining)), list[dict[str, Any]]()

    def add(entrant: Entrant, fraction: float, **more: object) -> None:
        name = unit.dataset.name + (TIERS if entrant.tiers else "")
        rows.append(
            {
                "unit": [name, unit.model, unit.seed],
                "method": entrant.method,
                "fraction": fraction,
                "schedule": entrant.schedule,
                "pretraining": unit.pretraining,
                **more,
            }
        )

    def quality(trained: Any, entrant: Entrant, seconds: float) -> dict[str, Any]:
        test = evaluate(trained.model, cases[entrant.tiers].test)
        return {
            "auc": test.auc,
            "log_loss": test.log_loss,
            "valid": [round(epoch.auc, 5) for epoch in trained.history],
            "epochs": len(trained.history) - 1,
            "seconds": seconds,
        }

    full = Entrant("full", "", False)
    add(full, 1.0, **quality(first, full, first.seconds), harms=[harm.field for harm in first.harms])
    for fraction in unit.fractions:
        for entrant in unit.entrants:
            task = cases[entrant.tiers].task
            try:
                found = search(task, resolve("search", SEARCHES, entrant.method)(), Budget.percent(100 * fraction))
            except BudgetError as error:
                add(entrant, fraction, refused=str(error))
                continue
            trained = retrain(task, found.model, Retrain(**SCHEDULES[entrant.schedule]))
            seconds = found.seconds + trained.seconds
            add(
                entrant, fraction, **quality(trained, entrant, seconds), cost=seconds / first.seconds,
                search_epochs=found.summary.epochs, widths=list(found.mask.widths),
            )  # fmt: skip
    return rows


def missing(
    rows: Iterable[dict[str, Any]], unit: list[Any], entrants: Iterable[Entrant], fractions: Iterable[float]
) -> tuple[Entrant, ...]:
    """The entrants of a unit that lack a row at one of the fractions."""
    name, *rest = unit
    there = {(row["method"], row["schedule"], row["fraction"], *row["unit"]) for row in rows}

    def has(entrant: Entrant, fraction: float) -> bool:
        tiers = TIERS if entrant.tiers else ""
        return (entrant.method, entrant.schedule, fraction, name + tiers, *rest) in there

    return tuple(entrant for entrant in entrants if not all(has(entrant, fraction) for fraction in fractions))


def summary(rows: Iterable[dict[str, Any]]) -> list[str]:
    """One line per search and schedule: the mean over cells of the paired difference to the baseline, and the cost."""
    cells: dict[tuple[Any, ...], dict[tuple[str, str, str], list[dict[str, Any]]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for row in rows:
        if row["method"] != "full" and "refused" not in row:
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
    parser.add_argument("--entrants", nargs="+", default=tuple(map(Entrant.parse, ENTRANTS)), type=Entrant.parse)
    parser.add_argument("--pretrain", default={}, type=json.loads, help="settings of [pretrain], as JSON")
    given = parser.parse_args()
    unnamed = [data.name for data in given.datasets if "{seed}" in data.name]
    if unnamed:
        parser.error(f"{unnamed[0]}: {{seed}} must be in a parent folder, because the last one names the dataset")
    known, units = read(given.out), list[Cell]()
    for seed, data, model in product(given.seeds, given.datasets, given.models):
        data = Path(str(data).replace("{seed}", str(seed)))
        entrants = missing(known, [data.name, model, seed], given.entrants, given.fractions)
        if entrants:
            units.append(Cell(data, model, seed, given.device, tuple(given.fractions), entrants, given.pretrain))
    for unit, _, left in run(rows_of, units, given.out, given.jobs, given.minutes):
        print(*unit.key, f"{left} left", flush=True)
    print("\n".join(summary(read(given.out))))


if __name__ == "__main__":
    main()
