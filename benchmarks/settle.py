"""Measures the cost and effect of bringing rows up to date before orthogonality changes their table.

    python benchmarks/settle.py
    python benchmarks/settle.py --shapes criteo --models fm --steps 200 --epochs 5 --rounds 3

Four ways to pretrain on the same rows: `none`, without orthogonality; `unsettled`, which multiplies tables whose rows
have missed steps, as earlier versions did; `settled`, the current behavior; and `dense`, which updates every row at
every step and is the reference. Every case trains in a separate process, two threads, on generated rows
(encoded_rows.py); a round runs all ways in sequence. Reported: seconds per epoch (median over rounds, without the
first epoch) and their ratio to the first way; AUC and log loss on held-out rows after the last epoch; and the
distance of the tables from those of `dense`, relative to their norm. If the tables are small for the batch, all rows
are updated at every step (`by rows: no`), and there is nothing to settle.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import numpy as np
from against import machine
from encoded_rows import SHAPES, Shape, write

HERE: Final = Path(__file__).resolve().parent
WAYS: Final = ("none", "unsettled", "settled", "dense")
BATCHES: Final = {"criteo": (2048,), "movielens": (512, 2048)}
HELD_OUT: Final = 0.2


@dataclass(frozen=True)
class Case:
    """One training."""

    shape: str
    model: str
    batch: int
    way: str
    steps: int
    epochs: int
    strength: float
    form: str


def inside(case: Case, tables: Path) -> dict[str, Any]:
    """Trains a case, writes its tables, and returns its time and accuracy."""
    import torch

    import fieldwise as fw
    from fieldwise.core.registry import resolve
    from fieldwise.data.store import Split
    from fieldwise.models import MODELS
    from fieldwise.tables.optimizer import Optimizer
    from fieldwise.tables.rate import Rate
    from fieldwise.train import checkpoint
    from fieldwise.train.pretraining import Pretrain

    torch.set_num_threads(2)
    if case.way == "unsettled":
        Optimizer.settle = lambda *_: None  # type: ignore[method-assign]
    shape = SHAPES[case.shape]
    count = case.steps * case.batch
    with tempfile.TemporaryDirectory() as folder:
        write(Shape(shape.name, shape.cardinalities, shape.clicks, 0), round(count * (1 + HELD_OUT)), Path(folder))
        ids, labels = np.load(Path(folder) / "ids.npy"), np.load(Path(folder) / "labels.npy")
    schema = fw.Schema.of(**{f"f{j}": c for j, c in enumerate(shape.cardinalities)})
    train, valid = Split(ids[:count], labels[:count]), Split(ids[count:], labels[count:])
    task = fw.Task(schema, train, valid, resolve("model", MODELS, case.model)(), device="cpu")
    settings = Pretrain(
        batch=case.batch,
        epochs=case.epochs,
        patience=case.epochs,
        optimizer="dense-adam" if case.way == "dense" else "adam",
        regularity={"strength": 0.0 if case.way == "none" else case.strength, "form": case.form},
    )
    with tempfile.TemporaryDirectory() as folder:
        history = fw.pretrain(task, settings, Path(folder)).history
        kept, _ = checkpoint.load(Path(folder), torch.device("cpu")) or ({}, {})
    flat = [t.flatten() for name, t in sorted(kept.items()) if name.startswith("model.embedding.tables")]
    np.save(tables, torch.cat(flat).numpy())
    return {
        "by_rows": not Optimizer(task.new_model(), settings.optimizer, Rate(1e-3), case.batch).same_shapes,
        "epoch_s": statistics.median(epoch.seconds for epoch in history[2:] or history[1:]),
        "auc": history[-1].auc,
        "log_loss": history[-1].log_loss,
    }


def trained(case: Case, tables: Path) -> dict[str, Any]:
    """Trains a case in a separate process."""
    command = [sys.executable, __file__, "--inside", json.dumps(asdict(case)), "--tables", str(tables)]
    environment = {**os.environ, "OMP_NUM_THREADS": "2", "OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "1000"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        sys.exit(f"{case} failed:\n{done.stderr}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def compare(cases: list[Case], rounds: int) -> list[dict[str, Any]]:
    """Measures all ways of one shape, model and batch, in turns; returns one row per way."""
    found: dict[str, list[dict[str, Any]]] = {case.way: [] for case in cases}
    with tempfile.TemporaryDirectory() as folder:
        tables = {case.way: Path(folder) / f"{case.way}.npy" for case in cases}
        for _ in range(rounds):
            for case in cases:
                found[case.way].append(trained(case, tables[case.way]))
        dense = np.load(tables["dense"]).astype(np.float64)
        off = {way: np.linalg.norm(np.load(path) - dense) / np.linalg.norm(dense) for way, path in tables.items()}
    seconds = {way: statistics.median(one["epoch_s"] for one in several) for way, several in found.items()}
    rows = []
    for case in cases:
        one = found[case.way][0]
        ratio = seconds[case.way] / seconds[cases[0].way]
        row = {**one, "epoch_s": seconds[case.way], "ratio": ratio, "from_dense": float(off[case.way])}
        rows.append({"case": asdict(case), **row})
        print(
            f"  {case.shape:9} {case.model:6} batch {case.batch:5} {case.way:9} "
            f"by rows: {'yes' if one['by_rows'] else 'no':3} epoch {row['epoch_s']:7.2f} s ({ratio:4.2f} x)  "
            f"AUC {one['auc']:.5f}  log loss {one['log_loss']:.5f}  from dense {row['from_dense']:.1e}",
            flush=True,
        )
    return rows


def main() -> None:
    """Measures all shapes and models, or the named ones."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", nargs="+", default=list(SHAPES), choices=list(SHAPES))
    parser.add_argument("--models", nargs="+", default=["fm", "dcnv2"])
    parser.add_argument("--batches", nargs="+", type=int, help="rows per step; default: depends on the shape")
    parser.add_argument("--ways", nargs="+", default=list(WAYS), choices=WAYS, help="must include `dense`")
    parser.add_argument("--steps", type=int, default=120, help="steps per epoch")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--strength", type=float, default=1e-3, help="of orthogonality; default: the library's")
    parser.add_argument("--form", default="cosine", choices=["cosine", "raw"])
    parser.add_argument("--out", type=Path, default=HERE / "results" / "settle.json", help="the JSON file")
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    parser.add_argument("--tables", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.inside:
        print(json.dumps(inside(Case(**json.loads(given.inside)), given.tables)))
        return
    if "dense" not in given.ways:
        parser.error("--ways lacks `dense`, the reference of all distances. Add it.")
    versions = {package: version(package) for package in ("fieldwise", "torch", "numpy")}
    result: dict[str, Any] = {"machine": machine(), "versions": versions, "rounds": given.rounds, "cases": []}
    common = {"steps": given.steps, "epochs": given.epochs, "strength": given.strength, "form": given.form}
    for shape in given.shapes:
        for model in given.models:
            for batch in given.batches or BATCHES[shape]:
                cases = [Case(shape, model, batch, way, **common) for way in given.ways]
                result["cases"] += compare(cases, given.rounds)
                given.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(f"written to {given.out}")


if __name__ == "__main__":
    main()
