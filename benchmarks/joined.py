"""Times an epoch of retraining on a CPU: the tiers of a column read one by one, or joined.

    python benchmarks/joined.py runs/ml-ids runs/criteo --out benchmarks/results/joined.json

Datasets are folders of `fieldwise prepare`. Each model is pretrained for two epochs. What the default search finds at
each budget is retrained for two epochs, both ways in turns, on one core. The fastest epoch counts, with its evaluation.
An epoch of pretraining, which joins tiers too, is there to compare with.
"""

import argparse
import json
from pathlib import Path
from typing import Any, Final

import torch
from resumable import MODELS, Unit

from fieldwise.core.budget import Budget
from fieldwise.searches.elimination import Elimination
from fieldwise.searches.search import search
from fieldwise.train import retraining
from fieldwise.train.decay import Decay
from fieldwise.train.pretraining import Pretrain
from fieldwise.train.retraining import Retrain, retrain, stored_for

BUDGETS: Final = ("25% parameters", "12.5% parameters", "3% parameters", "6.25% bytes int4")
TURNS: Final = 3
EPOCHS: Final = 2


def rows_of(unit: Unit, budgets: list[str]) -> list[dict[str, Any]]:
    """Times one model of one dataset."""
    first, cases = unit.cases(Pretrain(epochs=EPOCHS, harmful="keep"))
    task, rows = cases[True].task, []
    ways = {"tiers": lambda *_: None, "joined": retraining.joined_model}
    for text in budgets:
        budget = Budget.parse(text)
        found = search(task, Elimination(), budget)
        settings = Retrain(epochs=EPOCHS, decay=Decay(epochs=EPOCHS, rate=1))
        settings = stored_for(settings, budget, found.mask)
        best = dict.fromkeys(ways, float("inf"))
        for _ in range(TURNS):
            for name, way in ways.items():
                retraining.joined_model = way  # type: ignore[assignment]
                seconds = min(epoch.seconds for epoch in retrain(task, found.model, settings).history[1:])
                best[name] = min(best[name], seconds)
        retraining.joined_model = ways["joined"]  # type: ignore[assignment]
        pretraining = min(epoch.seconds for epoch in first.history[1:])
        rows.append(
            {"dataset": unit.dataset.name, "model": unit.model, "budget": text, "pretraining": pretraining, **best}
        )
    return rows


def main() -> None:
    """Writes the seconds of an epoch, and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("datasets", nargs="+", type=Path)
    parser.add_argument("--models", nargs="+", default=MODELS, choices=MODELS)
    parser.add_argument("--budgets", nargs="+", default=BUDGETS)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    torch.set_num_threads(1)
    rows: list[dict[str, Any]] = []
    print("| dataset | model | budget | epoch of pretraining, s | with tiers, s | joined, s | joined / tiers |")
    print("|---|---|---|---|---|---|---|")
    for dataset in given.datasets:
        for model in given.models:
            for row in rows_of(Unit(dataset, model, 0, "cpu"), given.budgets):
                rows.append(row)
                numbers = " | ".join(f"{row[name]:.2f}" for name in ("pretraining", "tiers", "joined"))
                of_row = f"{row['dataset']} | {row['model']} | {row['budget']}"
                print(f"| {of_row} | {numbers} | {row['joined'] / row['tiers']:.2f} |", flush=True)
    given.out.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
