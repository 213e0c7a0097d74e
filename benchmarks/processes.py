"""Two processes against one with the same global batch: gradients of the first step, final widths and AUC.

    python benchmarks/processes.py --data planted movielens --movielens data/ml-1m

Every run pretrains, searches (HAM) and retrains with dense Adam and a fixed number of epochs; `--movielens` is a
prepared dataset, of which `--rows` training rows are used. A row of the result is one model and seed.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
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
from fieldwise.processes.join import joined
from fieldwise.searches.gated import HAM
from fieldwise.searches.search import search
from fieldwise.tables.row_factored import row_factored
from fieldwise.train.evaluate import evaluate
from fieldwise.train.loop import fit
from fieldwise.train.plan import Training, TrainingPlan
from fieldwise.train.stages import Pretrain, Retrain, pretrain, retrain
from fieldwise.train.task import Task

HERE: Final = Path(__file__).resolve().parent
COUNTS: Final = (1, 2)
METHOD: Final = "dense-adam"
SETTINGS: Final[dict[str, dict[str, Any]]] = {
    "planted": {"batch": 512, "learning_rate": 0.01, "epochs": 8},
    "movielens": {"batch": 1024, "learning_rate": 0.001, "epochs": 4},
}
"""Settings of every stage; planted rows need a larger rate to be learned in few epochs."""
ROWS: Final = 1025
"""Rows of the step whose gradients are compared; odd, so that the parts differ."""


def few(split: Split, rows: int) -> Split:
    """Evenly spaced rows of a split."""
    places = np.unique(np.linspace(0, len(split) - 1, min(rows, len(split))).astype(np.int64))
    return Split(split.ids[places], split.labels[places])


def first_gradients(task: Task) -> dict[str, torch.Tensor]:
    """Gradients of one step on the first rows."""
    task = replace(task, train_rows=few(task.train_rows, ROWS))
    model = task.new_model()
    plan = TrainingPlan(
        stage="pretrain",
        forward=row_factored(model),
        evaluate=lambda: evaluate(model, task.valid),
        stop=lambda _: False,
        keep_best=False,
    )
    fit(model, task, Training(batch=ROWS, epochs=1, optimizer=METHOD), plan)
    return {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}


def measure(given: argparse.Namespace) -> None:
    """One run in this process, which may be one of several; the first writes what it found."""
    data = Dataset.open(given.dataset)
    model = resolve("model", MODELS, given.model)()
    task = Task.of(data, model, seed=given.seed, device="cpu")
    task = replace(task, train_rows=few(task.train_rows, given.rows))
    grads = first_gradients(task)
    settings = {**SETTINGS[given.data[0]], "optimizer": METHOD}
    began = time.perf_counter()
    full = pretrain(task, Pretrain(**settings, harmful="keep"))
    task = task.starting_from(full.model)
    found = search(task, HAM(**settings), "25%")
    small = retrain(task, found.model, Retrain(**settings))
    row = {
        "widths": list(found.mask.widths),
        "full_auc": evaluate(full.model, data.test).auc,
        "auc": evaluate(small.model, data.test).auc,
        "seconds": round(time.perf_counter() - began, 1),
    }
    if os.environ.get("RANK", "0") == "0":
        torch.save(grads, given.into / "grads.pt")
        (given.into / "row.json").write_text(json.dumps(row))


def one(count: int, name: str, dataset: Path, model: str, seed: int, rows: int, into: Path) -> dict[str, Any]:
    """The row of a run on some processes, and its gradients."""
    into.mkdir()
    words = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(count), str(HERE / "processes.py")]
    words += ["--data", name, "--dataset", str(dataset), "--model", model, "--seed", str(seed)]
    words += ["--rows", str(rows), "--into", str(into)]
    subprocess.run(words, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"}, stderr=subprocess.DEVNULL)
    return {**json.loads((into / "row.json").read_text()), "grads": torch.load(into / "grads.pt")}


def compared(name: str, dataset: Path, model: str, seed: int, rows: int) -> dict[str, Any]:
    """One process and two, side by side."""
    with tempfile.TemporaryDirectory() as home:
        single, double = (one(count, name, dataset, model, seed, rows, Path(home) / str(count)) for count in COUNTS)
    grads = single.pop("grads"), double.pop("grads")
    gaps = {part: float((grads[1][part] - grad).abs().max()) for part, grad in grads[0].items()}
    # batch normalization removes a bias before it: its gradient is 0, and rounding makes some of it
    bias = max((gap for part, gap in gaps.items() if ".mlp." in part and part.endswith("bias")), default=0.0)
    gap = max(gap for part, gap in gaps.items() if not (".mlp." in part and part.endswith("bias")))
    columns = max(abs(a - b) for a, b in zip(single["widths"], double["widths"], strict=True))
    return {
        "data": name, "model": model, "seed": seed, "rows": rows, "gradient_gap": gap, "bias_gradient_gap": bias,
        "column_gap": columns, "one": single, "two": double,
    }  # fmt: skip


def main() -> None:
    """Measures all, or, with --dataset, one run in this process."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", nargs="+", default=["planted"], choices=["planted", "movielens"])
    parser.add_argument("--movielens", type=Path, help="a prepared dataset")
    parser.add_argument("--models", nargs="+", default=["deepfm", "dcnv2"])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--out", type=Path, default=HERE / "results" / "processes.json")
    for name in ("dataset", "into"):
        parser.add_argument(f"--{name}", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--model", help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.dataset:
        if int(os.environ["WORLD_SIZE"]) == 1:
            measure(given)
        else:
            with joined():
                measure(given)
        return
    rows: list[dict[str, Any]] = []
    about = machine()
    with tempfile.TemporaryDirectory() as home:
        folders = {"planted": Path(home) / "planted", "movielens": given.movielens}
        if "planted" in given.data:
            prepare(Planted(rows=given.rows * 10 // 8, signal=4.0), folders["planted"])
        for name in given.data:
            for model in given.models:
                for seed in range(given.seeds):
                    rows.append(compared(name, folders[name], model, seed, given.rows))
                    print(rows[-1], flush=True)
                    means = summary(rows)
                    given.out.write_text(json.dumps({"machine": about, "means": means, "rows": rows}, indent=1) + "\n")
        print(json.dumps(summary(rows), indent=1))


def summary(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Largest gaps and mean AUCs per data and model."""
    found = []
    for key in dict.fromkeys((row["data"], row["model"]) for row in rows):
        own = [row for row in rows if (row["data"], row["model"]) == key]
        aucs = {
            f"{name}_{count}": mean(row[count][name] for row in own)
            for name in ("full_auc", "auc")
            for count in ("one", "two")
        }
        found.append(
            {
                "data": key[0], "model": key[1], "seeds": len(own),
                "gradient_gap": max(row["gradient_gap"] for row in own),
                "column_gap": max(row["column_gap"] for row in own),
                **aucs,
            }
        )  # fmt: skip
    return found


if __name__ == "__main__":
    main()
