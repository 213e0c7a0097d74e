"""Training on one GPU: epochs of MovieLens-1M's shape, samples per second on Criteo's, and the fraction of the limit.

    python benchmarks/gpu.py

Rows are generated (encoded_rows.py) and are on the GPU. An epoch is timed from the shuffle to the evaluation of a few
validation rows. The first epoch, which records the step, is not counted; the result is the median of the others.

The minimum work of a step, compared with the peak rates of the GPU:

- Bytes. Adam reads and writes a weight and its two moments, 24 bytes per number. Each of the batch's embeddings is read
  forward and backward, and its gradient is written and read: 16 bytes per number of (B, S). Shuffled ids are read and
  copied: 12 bytes each.
- Operations. Two per weight of a matrix and per row, three times: forward, for the input, for the weight.

The limit is the larger of bytes / bandwidth and operations / peak; `share` is the limit divided by the measured time.
"""

import argparse
import json
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path
from typing import Any, Final, get_args

import gpu_plain
import gpu_sums
import numpy as np
import torch
from encoded_rows import SHAPES, write
from numpy.typing import NDArray

import fieldwise as fw
from fieldwise.core.budget import Budget
from fieldwise.core.registry import resolve
from fieldwise.data.store import Split
from fieldwise.models import MODELS
from fieldwise.searches import HAM
from fieldwise.train import loop
from fieldwise.train.precision import Precision
from fieldwise.train.pretraining import Pretrain

HERE: Final = Path(__file__).resolve().parent
PEAKS: Final[Mapping[str, tuple[float, float, float]]] = {
    "NVIDIA H200": (4.8e12, 67e12, 990e12),
    "NVIDIA H100": (3.35e12, 67e12, 990e12),
}
"""Bytes, float32 operations and bfloat16 operations per second, from the data sheets; TF32 has half of the last."""
BATCH: Final = 8192
ROWS: Final = 200 * BATCH
BIG: Final = 50_000
"""Fields with more ids get the rows of large tables."""
ROWS_OF_ALL: Final = 100_000_000
SHOWN: Final = (("fm", "float32"), ("dcnv2", "bfloat16"))


@cache
def rows_of(shape: str, rows: int) -> tuple[NDArray[np.int32], NDArray[np.uint8]]:
    """Generated ids and labels."""
    with tempfile.TemporaryDirectory() as folder:
        write(SHAPES[shape], rows, Path(folder))
        return np.load(Path(folder) / "ids.npy"), np.load(Path(folder) / "labels.npy")


def task_of(shape: str, rows: int, model: str, batch: int) -> fw.Task:
    """The task of a case, with a batch of validation rows."""
    ids, labels = rows_of(shape, rows)
    schema = fw.Schema.of(**{f"f{j}": c for j, c in enumerate(SHAPES[shape].cardinalities)})
    base = resolve("model", MODELS, model)()
    return fw.Task(schema, Split(ids, labels), Split(ids[:batch], labels[:batch]), base, device="cuda")


def train(shape: str, rows: int, model: str, batch: int, epochs: int, **settings: Any) -> dict[str, Any]:
    """Trains without regularity; returns the time of an epoch and its ratio to the limit."""
    task = task_of(shape, rows, model, batch)
    torch.cuda.reset_peak_memory_stats()
    trained = fw.pretrain(task, _settings(batch, epochs, settings))
    seconds = statistics.median(epoch.seconds for epoch in trained.history[2:])
    limit = rows / batch * step_limit(task, trained.model, batch, settings.get("precision", "float32"))
    return {
        "epoch_s": round(seconds, 4),
        "samples_a_second": round(rows / seconds),
        "limit_s": round(limit, 4),
        "share": round(limit / seconds, 3),
        "peak_gib": round(torch.cuda.max_memory_allocated() / 2**30, 2),
        "loss": trained.history[-1].loss,
    }


def _settings(batch: int, epochs: int, more: dict[str, Any]) -> Pretrain:
    return Pretrain(batch=batch, epochs=epochs, patience=epochs, regularity={"strength": 0.0}, harmful="keep", **more)


def search_ratio(model: str, precision: str) -> dict[str, Any]:
    """Steps of a search in multiples of a training's, and whether two trainings gave the same numbers."""
    ids, labels = rows_of("criteo", ROWS)
    task = replace(task_of("criteo", ROWS, model, BATCH), valid_rows=Split(ids[: 10 * BATCH], labels[: 10 * BATCH]))
    once, twice = (fw.pretrain(task, _settings(BATCH, 4, {"precision": precision})) for _ in range(2))
    weights = zip(once.model.parameters(), twice.model.parameters(), strict=True)
    same = all(torch.equal(mine, other) for mine, other in weights)
    settings = HAM(epochs=4, batch=BATCH, precision=precision)
    found = fw.search(task.starting_from(once.model), settings, Budget.percent(25))
    began = time.perf_counter()
    for _ in range(5):
        fw.evaluate(once.model, task.valid)
    other = (time.perf_counter() - began) / 5
    each, training = (statistics.median(e.seconds for e in run.history[2:]) - other for run in (found, once))
    return {
        "training_s": round(training, 4),
        "search_s": round(each, 4),
        "ratio": round(each / training, 2),
        "same_twice": same and [e.loss for e in once.history] == [e.loss for e in twice.history],
    }


def huge(model: str, precision: str, rows: int, batch: int) -> dict[str, Any]:
    """A training with tables of 100 million rows, in fields that Criteo's shape caps."""
    small = SHAPES["criteo"].cardinalities
    rest = sum(count for count in small if count < BIG)
    counts = [c if c < BIG else (ROWS_OF_ALL - rest) // sum(count >= BIG for count in small) for c in small]
    draw = np.random.default_rng(0)
    ids = np.stack([np.floor(c ** draw.random(rows)).astype(np.int32) - 1 for c in counts], 1)
    labels = (draw.random(rows) < SHAPES["criteo"].clicks).astype(np.uint8)
    schema = fw.Schema.of(**{f"f{j}": count for j, count in enumerate(counts)})
    base = resolve("model", MODELS, model)()
    with torch.device("cuda"):
        start = base.new(schema)  # on a CPU, drawing its weights takes ten seconds
    task = fw.Task(schema, Split(ids, labels), Split(ids[:batch], labels[:batch]), base, device="cuda")
    task = task.starting_from(start)
    torch.cuda.reset_peak_memory_stats()
    trained = fw.pretrain(task, _settings(batch, 4, {"precision": precision}))
    seconds = statistics.median(epoch.seconds for epoch in trained.history[2:])
    tables = 4 * trained.model.size().embedding + 4 * trained.model.size().first_order
    return {
        "rows": sum(counts),
        "samples_a_second": round(rows / seconds),
        "tables_gib": round(tables / 2**30, 2),
        "peak_gib": round(torch.cuda.max_memory_allocated() / 2**30, 2),
        "loss": trained.history[-1].loss,
    }


def step_limit(task: fw.Task, model: Any, batch: int, precision: str) -> float:
    """Returns the minimum seconds of a step, as the module docstring counts them."""
    bandwidth, single, half = PEAKS[torch.cuda.get_device_name()]
    size, columns = model.size(), task.layout.columns
    weights = size.embedding + size.first_order + size.dense
    bytes_moved = 24 * weights + 12 * batch * len(task.schema) + 16 * batch * columns
    matrices = sum(weight.numel() for weight in model.head.parameters() if weight.dim() == 2)
    operations = 6 * batch * matrices
    peak = {"float32": single, "tf32": half / 2, "bfloat16": half}[precision]
    return max(bytes_moved / bandwidth, operations / peak)


def cases() -> Iterator[tuple[str, dict[str, Any]]]:
    """The trainings by name."""
    for model, precisions in (("fm", ("float32",)), ("deepfm", ("float32",)), ("dcnv2", get_args(Precision))):
        for precision in precisions:
            more = {"shape": "criteo", "rows": ROWS, "model": model, "batch": BATCH, "precision": precision}
            yield f"criteo {model} {precision}", more
    for model in ("fm", "deepfm", "autoint", "dcnv2"):
        yield f"movielens {model}", {"shape": "movielens", "rows": 590_856, "model": model, "batch": 2048}


def plain_model(model: str, precision: str, ours: float) -> dict[str, float]:
    """Million samples per second of plain PyTorch by way of compiling, and fieldwise's ratio to the best."""
    rows, counts = rows_of("criteo", ROWS), SHAPES["criteo"].cardinalities
    found = {way: gpu_plain.train(*rows, counts, model, BATCH, precision, way) / 1e6 for way in gpu_plain.WAYS}
    return {
        **{way: round(speed, 2) for way, speed in found.items()},
        "ratio": round(ours / 1e6 / max(found.values()), 1),
    }


def step_by_step() -> dict[str, Any]:
    """A training without a captured graph."""
    captured = loop.Captured
    loop.Captured = lambda step: step  # type: ignore[assignment, misc]
    try:
        return train("movielens", 590_856, "dcnv2", 2048, 3)
    finally:
        loop.Captured = captured  # type: ignore[misc]


def main() -> None:
    """Measures all parts; the JSON file is written after each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=HERE / "results" / "gpu.json")
    parser.add_argument("--commit", help="commit of the code that runs; default: the one checked out")
    given = parser.parse_args()
    git = ["git", "rev-parse", "--short", "HEAD"]
    found: dict[str, Any] = {
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "commit": given.commit
        or subprocess.run(git, cwd=HERE, capture_output=True, text=True, check=False).stdout.strip(),
    }

    def measured(part: str, name: str, work: Callable[[], Any]) -> None:
        got = found.setdefault(part, {})[name] = work()
        print(f"{part}, {name}: {got}", flush=True)
        given.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")

    for name, case in cases():
        measured("results", name, partial(train, **case, epochs=6))
    for model, precision in SHOWN:
        measured("searches", f"{model} {precision}", partial(search_ratio, model, precision))
    for model, precision in SHOWN:
        measured("large", f"{model} {precision}", partial(huge, model, precision, 40 * BATCH, BATCH))
    for model, precision in (*SHOWN, ("dcnv2", "tf32")):
        ours = found["results"][f"criteo {model} {precision}"]["samples_a_second"]
        measured("plain", f"{model} {precision}", partial(plain_model, model, precision, ours))
    measured("results", "movielens dcnv2, step by step", step_by_step)
    for width in (16, 1):
        measured("sums", f"width {width}", partial(gpu_sums.ways_of_summing, rows_of("criteo", ROWS)[0][:BATCH], width))


if __name__ == "__main__":
    main()
