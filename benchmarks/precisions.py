"""Measures test AUC on a GPU by precision of matrix products, with and without kernels.

    python benchmarks/precisions.py runs/ml-ids runs/criteo --out runs/precisions.jsonl --jobs 20 --minutes 6

DATASET is a folder of `fieldwise prepare`. A unit is one dataset, model and seed. Each way pretrains, and retrains one
width for all fields at a quarter of the parameters. Each unit appends its rows to the output when it ends, and the same
command skips what is there. The table has the mean of test AUC without kernels in float32, and the mean difference of
each other way to it, paired by seed, with the p-value of a t-test.
"""

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from statistics import fmean
from typing import Any, Final

from resumable import Unit, options, read, run_missing

WAYS: Final = (("none", "float32"), ("all", "float32"), ("all", "tf32"), ("all", "bfloat16"))
"""Kernels and precision; the first is what the others are compared with."""


def rows_of(unit: Unit) -> list[dict[str, Any]]:
    """Trains and tests the models of a unit."""
    from fieldwise.core.budget import Budget
    from fieldwise.data.store import Dataset
    from fieldwise.kernels.available import VARIABLE
    from fieldwise.searches.search import search
    from fieldwise.searches.uniform import Uniform
    from fieldwise.train.evaluate import evaluate
    from fieldwise.train.pretraining import Pretrain, pretrain
    from fieldwise.train.retraining import Retrain, retrain

    data, rows = Dataset.open(unit.dataset), list[dict[str, Any]]()
    for kernels, precision in WAYS:
        os.environ[VARIABLE] = kernels
        task = unit.task(data)
        first = pretrain(task, Pretrain(precision=precision, harmful="keep"))
        task = task.starting_from(first)
        small = search(task, Uniform(), Budget.percent(25)).model
        last = retrain(task, small, Retrain(precision=precision))
        for stage, trained in (("pretrain", first), ("retrain", last)):
            rows.append({
                "unit": unit.key, "way": [kernels, precision], "stage": stage, "epochs": len(trained.history) - 1,
                "auc": evaluate(trained.model, data.test).auc, "seconds": round(trained.seconds, 2),
            })  # fmt: skip
    return rows


def table(rows: Iterable[dict[str, Any]]) -> Iterator[str]:
    """One line per dataset, model and stage."""
    from fieldwise.reports.comparison.statistics import paired

    cells: dict[tuple[str, str, str], dict[tuple[str, ...], dict[int, float]]] = defaultdict(lambda: defaultdict(dict))
    for row in rows:
        data, model, seed = row["unit"]
        cells[data, model, row["stage"]][tuple(row["way"])][seed] = row["auc"]
    first, *others = WAYS
    heads = [f"kernels {kernels}, {precision}" for kernels, precision in others]
    yield " | ".join(["| dataset", "model", "stage", "seeds", "without kernels, float32", *heads]) + " |"
    yield "|" + "---|" * (5 + len(heads))
    for key, ways in sorted(cells.items()):
        base, found = ways[first], []
        for way in others:
            gaps = [auc - base[seed] for seed, auc in ways[way].items()]
            found.append(f"{fmean(gaps):+.4f} ({paired(gaps)[0]:.2g})" if len(gaps) > 1 else f"{fmean(gaps):+.4f}")
        yield "| " + " | ".join([*key, str(len(base)), f"{fmean(base.values()):.4f}", *found]) + " |"


def main() -> None:
    """Runs the missing units in parallel processes, and prints the table of all that was measured."""
    parser = options(__doc__, seeds=5, device="cuda")
    parser.add_argument("datasets", type=Path, nargs="*")
    given = parser.parse_args()
    units = [Unit(d, m, s, given.device) for s in given.seeds for d in given.datasets for m in given.models]
    for unit, _, left in run_missing(rows_of, units, given):
        print(*unit.key, f"{left} left", flush=True)
    print("\n".join(table(read(given.out))))


if __name__ == "__main__":
    main()
