"""Two processes against one with the same global batch: gradients of the first step, final widths and AUC.

    python benchmarks/processes.py --data planted movielens --movielens data/ml-1m

Every run pretrains, searches (HAM) and retrains with dense Adam and a fixed number of epochs; `--movielens` is a
prepared dataset, of which `--rows` training rows are used. A third run, on one process, begins with weights that differ
in their last bits: it shows how far rounding itself carries a training. One process and two are also run in float64,
where it carries less far, and without distillation, whose labels are float32. With `--sharded`, another run has its
tables sharded over two processes, which needs TorchRec. A row of the result is one model and seed; what the result file
has already is not measured again.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from itertools import product
from pathlib import Path
from statistics import mean
from typing import Any, Final

import numpy as np
import torch
from against import machine

from fieldwise.core.registry import resolve
from fieldwise.data.planted import Planted
from fieldwise.data.prepare import prepare
from fieldwise.data.store import Dataset, Split
from fieldwise.models import MODELS
from fieldwise.models.model import CTRModel
from fieldwise.processes.join import joined
from fieldwise.processes.ranks import splitting
from fieldwise.searches.gated import HAM
from fieldwise.searches.search import search
from fieldwise.tables.embedding import FieldEmbedding
from fieldwise.tables.row_factored import row_factored
from fieldwise.train.evaluate import evaluate
from fieldwise.train.loop import fit
from fieldwise.train.plan import Training, TrainingPlan
from fieldwise.train.pretraining import Pretrain, pretrain
from fieldwise.train.retraining import Retrain, retrain
from fieldwise.train.task import Task

HERE: Final = Path(__file__).resolve().parent
METHOD: Final = "dense-adam"
SETTINGS: Final[dict[str, dict[str, Any]]] = {
    "planted": {"batch": 512, "learning_rate": 0.01, "epochs": 8},
    "movielens": {"batch": 1024, "learning_rate": 0.001, "epochs": 4},
}
"""Settings of every stage; planted rows need a larger rate to be learned in few epochs."""
LEAST: Final = 1000
"""Rows from which tables are sharded."""
ROWS: Final = 1025
"""Rows of the step whose gradients are compared; odd, so that the parts differ."""


RUNS: Final = {
    "one": (1, "training"),
    "two": (2, "training"),
    "nudged": (1, "nudged"),
    "one_float64": (1, "float64"),
    "two_float64": (2, "float64"),
}
"""Number of processes and first weights of each run."""
PAIRS: Final = {"two": "one", "nudged": "one", "two_float64": "one_float64", "sharded": "one"}
"""Runs whose widths are compared."""


def few(split: Split, rows: int) -> Split:
    """Evenly spaced rows of a split."""
    places = np.unique(np.linspace(0, len(split) - 1, min(rows, len(split))).astype(np.int64))
    return Split(split.ids[places], split.labels[places])


def first_gradients(task: Task, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    """Gradients of one step on the first rows."""
    task = replace(task, train_rows=few(task.train_rows, ROWS))
    model = task.new_model().to(dtype)
    plan = TrainingPlan(
        stage="pretrain",
        forward=row_factored(model),
        evaluate=lambda: evaluate(model, task.valid),
        stop=lambda _: False,
        keep_best=False,
    )
    fit(model, task, Training(batch=ROWS, epochs=1, optimizer=METHOD), plan)
    tables = {name: own for name, own in model.named_modules() if isinstance(own, FieldEmbedding)}
    found = {f"{name}.{j}": of_all(own, j) for name, own in tables.items() for j in range(len(task.schema))}
    rest = {name: weight.grad for name, weight in model.named_parameters() if ".tables." not in name}
    return {name: grad for name, grad in {**found, **rest}.items() if grad is not None}


def of_all(embedding: FieldEmbedding, field: int) -> torch.Tensor | None:
    """The gradient of one field's table, of all processes; None if it has no columns."""
    if not embedding.layout.widths[field]:
        return None
    (weight, rows), shards = embedding.span(field), embedding.shards_of(field)
    assert weight.grad is not None
    return shards[0].whole(shards[1], weight.grad[rows]) if shards else weight.grad[rows]


def nudged(model: CTRModel) -> CTRModel:
    """A model whose weights differ from the given ones in their last bits."""
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(1 + 1e-6)
    return model


STARTS: Final[dict[str, Callable[[CTRModel], CTRModel]]] = {"nudged": nudged, "float64": lambda model: model.double()}
"""Other first weights of a training."""


def measure(given: argparse.Namespace) -> dict[str, Any]:
    """One run in this process, which may be one of several."""
    data = Dataset.open(given.dataset)
    model = resolve("model", MODELS, given.model)()
    task = Task.of(data, model, seed=given.seed, device="cpu")
    task = replace(task, train_rows=few(task.train_rows, given.rows))
    if given.kind == "gradients":
        dtypes = [torch.float32] if given.sharded else [torch.float32, torch.float64]  # TorchRec does not move float64
        return {str(dtype): first_gradients(task, dtype) for dtype in dtypes}
    if given.kind in STARTS:
        task = task.starting_from(STARTS[given.kind](task.new_model()))
    exact = given.kind == "float64"  # gates, too, and clicks alone as labels: predictions as labels are float32
    if exact:
        torch.set_default_dtype(torch.float64)
    settings = {**SETTINGS[given.data[0]], "optimizer": METHOD}
    began = time.perf_counter()
    full = pretrain(task, Pretrain(**settings, harmful="keep"))
    task = task.starting_from(full.model)
    found = search(task, HAM(**settings), "25%")
    small = retrain(task, found.model, Retrain(**settings, schedule="constant", **({"distil": 0.0} if exact else {})))
    return {
        "widths": list(found.mask.widths),
        "full_auc": evaluate(full.model, data.test).auc,
        "auc": evaluate(small.model, data.test).auc,
        "seconds": round(time.perf_counter() - began, 1),
    }


def one(count: int, name: str, dataset: Path, row: dict[str, Any], run: str, sharded: bool = False) -> Any:
    """What a run on some processes found."""
    with tempfile.TemporaryDirectory() as home:
        into = Path(home) / "found.pt"
        words = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(count)]
        words += [str(HERE / "processes.py"), "--data", name, "--dataset", str(dataset), "--kind", run]
        words += ["--into", str(into), *(f"--{key}={row[key]}" for key in ("model", "seed", "rows"))]
        words += ["--sharded"] * sharded
        subprocess.run(words, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"}, stderr=subprocess.DEVNULL)
        return torch.load(into)


def complete(row: dict[str, Any], dataset: Path, sharded: bool) -> None:
    """Adds what a row does not have yet: one process, two, and one whose first weights differ in their last bits."""
    name = row["data"]
    for key, (count, kind) in RUNS.items():
        if key not in row:
            row[key] = one(count, name, dataset, row, kind)
    if "gradient_gaps" not in row:
        each = [one(count, name, dataset, row, "gradients") for count in (1, 2)]
        row["gradient_gaps"] = {dtype: gap(grads, each[1][dtype]) for dtype, grads in each[0].items()}
    if sharded and "sharded" not in row:
        row["sharded"] = one(2, name, dataset, row, "training", sharded=True)
        each = [one(count, name, dataset, row, "gradients", sharded=count > 1) for count in (1, 2)]
        row["sharded_gaps"] = {dtype: gap(each[0][dtype], grads) for dtype, grads in each[1].items()}
    for key, other in PAIRS.items():
        if key in row:
            pairs = zip(row[other]["widths"], row[key]["widths"], strict=True)
            row[f"column_gap_{key}"] = max(abs(a - b) for a, b in pairs)


def gap(grads: dict[str, torch.Tensor], others: dict[str, torch.Tensor]) -> float:
    """The largest difference of a gradient.

    Not of biases before a batch normalization, which removes them: their gradient is 0, and rounding makes some of it.
    """
    parts = [part for part in grads if not (".mlp." in part and part.endswith("bias"))]
    return max(float((grads[part] - others[part]).abs().max()) for part in parts)


def main() -> None:
    """Measures all, or, with --dataset, one run in this process."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", nargs="+", default=["planted"], choices=["planted", "movielens"])
    parser.add_argument("--movielens", type=Path, help="a prepared dataset")
    parser.add_argument("--models", nargs="+", default=["deepfm", "dcnv2"])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--sharded", action="store_true", help="also with tables sharded over two processes")
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--out", type=Path, default=HERE / "results" / "processes.json")
    for name in ("dataset", "into"):
        parser.add_argument(f"--{name}", type=Path, help=argparse.SUPPRESS)
    for name in ("model", "kind"):
        parser.add_argument(f"--{name}", help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.dataset:
        several = joined() if int(os.environ["WORLD_SIZE"]) > 1 else nullcontext()
        with several, splitting(LEAST if given.sharded else None):
            found = measure(given)
        if os.environ["RANK"] == "0":
            torch.save(found, given.into)
        return
    rows = json.loads(given.out.read_text())["rows"] if given.out.exists() else []
    about = machine()
    with tempfile.TemporaryDirectory() as home:
        folders = {"planted": Path(home) / "planted", "movielens": given.movielens}
        if "planted" in given.data:
            prepare(Planted(rows=given.rows * 10 // 8, signal=4.0), folders["planted"])
        for name, model, seed in product(given.data, given.models, range(given.seeds)):
            key = {"data": name, "model": model, "seed": seed, "rows": given.rows}
            row = next((row for row in rows if key.items() <= row.items()), None)
            if row is None:
                rows.append(row := key)
            complete(row, folders[name], given.sharded)
            print(row, flush=True)
            done = [row for row in rows if {*RUNS, "gradient_gaps"} <= row.keys()]
            given.out.write_text(json.dumps({"machine": about, "means": summary(done), "rows": rows}, indent=1) + "\n")


def summary(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Largest gaps and mean AUCs per data and model."""
    found = []
    for key in dict.fromkeys((row["data"], row["model"]) for row in rows):
        own = [row for row in rows if (row["data"], row["model"]) == key]
        runs = [run for run in (*RUNS, "sharded") if all(run in row for row in own)]
        aucs = {f"{name}_{run}": mean(row[run][name] for row in own) for name in ("full_auc", "auc") for run in runs}
        gaps = {f"column_gap_{run}": max(row[f"column_gap_{run}"] for row in own) for run in PAIRS if run in runs}
        for kind in ("gradient_gaps", *(["sharded_gaps"] if "sharded" in runs else [])):
            for dtype in own[0][kind]:
                gaps[f"{kind[:-1]}_{dtype}"] = max(row[kind][dtype] for row in own)
        found.append({"data": key[0], "model": key[1], "seeds": len(own), **gaps, **aucs})
    return found


if __name__ == "__main__":
    main()
