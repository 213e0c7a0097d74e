"""Measures test AUC on a GPU by precision of matrix products, with and without kernels.

    python benchmarks/precisions.py runs/ml-ids runs/criteo --out runs/precisions.jsonl --jobs 20 --minutes 6

DATASET is a folder of `fieldwise prepare`. A unit is one dataset, model and seed. Each way pretrains, and retrains one
width for all fields at a quarter of the parameters. Each unit appends its rows to the output when it ends, and the same
command skips what is there. The table has the mean of test AUC without kernels in float32, and the mean difference of
each other way to it, paired by seed, with the p-value of a t-test.
"""

import argparse
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, Final

from resumable import read, run

MODELS: Final = ("fm", "deepfm", "autoint", "dcnv2")
WAYS: Final = (("none", "float32"), ("all", "float32"), ("all", "tf32"), ("all", "bfloat16"))
"""Kernels and precision; the first is what the others are compared with."""


@dataclass(frozen=True)
class Unit:
    """One dataset, model and seed."""

    dataset: Path
    model: str
    seed: int

    @property
    def key(self) -> list[Any]:
        """What tells units apart in the output."""
        return [self.dataset.name, self.model, self.seed]


def rows_of(unit: Unit) -> list[dict[str, Any]]:
    """Trains and tests the models of a unit."""
    import torch

    from fieldwise.core.budget import Budget
    from fieldwise.core.registry import resolve
    from fieldwise.data.store import Dataset
    from fieldwise.kernels.available import VARIABLE
    from fieldwise.models import MODELS as KNOWN
    from fieldwise.searches.search import search
    from fieldwise.searches.uniform import Uniform
    from fieldwise.train.evaluate import evaluate
    from fieldwise.train.stages import Pretrain, Retrain, pretrain, retrain
    from fieldwise.train.task import Task

    torch.set_num_threads(1)
    data, rows = Dataset.open(unit.dataset), list[dict[str, Any]]()
    for kernels, precision in WAYS:
        os.environ[VARIABLE] = kernels
        task = Task.of(data, resolve("model", KNOWN, unit.model)(), unit.seed, "cuda")
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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("datasets", type=Path, nargs="*")
    parser.add_argument("--models", nargs="+", default=MODELS, choices=MODELS)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=1e9, help="no unit starts after this time")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    done = [row["unit"] for row in read(given.out)]
    units = [
        Unit(data, model, seed) for seed in range(given.seeds) for data in given.datasets for model in given.models
    ]
    for unit, _, left in run(
        rows_of, [unit for unit in units if unit.key not in done], given.out, given.jobs, given.minutes
    ):
        print(*unit.key, f"{left} left", flush=True)
    print("\n".join(table(read(given.out))))


if __name__ == "__main__":
    main()
