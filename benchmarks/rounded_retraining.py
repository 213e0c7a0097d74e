"""Measures the second training of int4 tables at a constant rate, which rounds them: learning rate and patience.

    python benchmarks/rounded_retraining.py DATASET --models dcnv2 fm --out benchmarks/results/rounded_retraining.json

DATASET is a folder of `fieldwise prepare`. Each model is pretrained, searched by ham at a quarter of its bytes and
retrained in float32, once; the trainings with rounding all start from there. `after` is rounding without training.
"""

import argparse
import json
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from fieldwise.core.budget import Budget
from fieldwise.core.registry import resolve
from fieldwise.core.store import Store
from fieldwise.core.watcher import Watcher
from fieldwise.data.store import Dataset
from fieldwise.models import MODELS
from fieldwise.models.model import CTRModel
from fieldwise.models.stored import stored
from fieldwise.searches import HAM
from fieldwise.searches.search import search
from fieldwise.tables.embedding import FieldEmbedding
from fieldwise.tables.rounding import rounding
from fieldwise.train.distillation import distilled
from fieldwise.train.evaluate import evaluate
from fieldwise.train.pretraining import Pretrain, pretrain
from fieldwise.train.retraining import Retrain, Retraining, retrain
from fieldwise.train.task import Task

INT4 = Store("int4")
CONSTANT = Retrain(schedule="constant", l2=0, average=0)


@dataclass(frozen=True)
class Row:
    """One training with rounding; the rate is a multiple of the default."""

    model: str
    seed: int
    rate: float
    patience: int
    epochs: int
    valid: float
    auc: float


def rows(data: Dataset, name: str, seed: int, device: str, pairs: list[tuple[float, int]]) -> Iterator[Row]:
    """Yields the float32 model, its rounding, and each training with rounding."""
    task = Task.of(data, resolve("model", MODELS, name)(), seed, device)  # type: ignore[arg-type]
    task = task.starting_from(pretrain(task, Pretrain(average=0)))
    small = retrain(task, search(task, HAM(start="searched"), Budget(25, "bytes", share=True)).model, CONSTANT).model
    assert isinstance(small, CTRModel)
    for label, model in (("float32", small), ("int4 after", stored(small, INT4))):
        found = evaluate(model, task.valid).auc, evaluate(model, data.test).auc
        yield Row(f"{name}, {label}", seed, 0, 0, 0, *found)
    for rate, patience in pairs:
        own, settings = (
            deepcopy(small),
            CONSTANT.model_copy(update={"store": INT4, "patience": patience}).fitted(*task.counts),
        )
        settings = settings.model_copy(update={"learning_rate": rate * settings.learning_rate})
        tables = [module for module in own.modules() if isinstance(module, FieldEmbedding)]
        with rounding(tables, INT4) as rounded:
            retraining = Retraining(distilled(task, settings.distil), settings, INT4, Watcher())
            history = retraining.fit(own, settings, None, rounded)
        test = evaluate(stored(own.eval(), INT4), data.test).auc
        yield Row(name, seed, rate, patience, len(history) - 1, max(epoch.auc for epoch in history), test)


def main() -> None:
    """Measures and writes all rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset", type=Path)
    parser.add_argument("--models", nargs="+", default=["dcnv2", "fm"], choices=list(MODELS))
    parser.add_argument("--rates", nargs="+", type=float, default=[0.3, 1.0, 2.0])
    parser.add_argument("--patiences", nargs="+", type=int, default=[2, 4])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    torch.set_num_threads(1)
    found, pairs = [], [(rate, patience) for patience in given.patiences for rate in given.rates]
    for name in given.models:
        for seed in range(given.seeds):
            for row in rows(Dataset.open(given.dataset), name, seed, given.device, pairs):
                print(row, flush=True)
                found.append(asdict(row))
    given.out.write_text(json.dumps({"torch": torch.__version__, "rows": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
