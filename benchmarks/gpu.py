"""Training on one GPU: epochs of MovieLens-1M's shape, samples per second on Criteo's, and the fraction of the limit.

    python benchmarks/gpu.py

Rows are generated (encoded_rows.py) and are on the GPU. An epoch is timed from the shuffle to the evaluation of a few
validation rows. The first epoch, which records the step, is not counted; the result is the median of the others.

The minimum work of a step, compared with the peak rates of the GPU:

- Bytes. Dense Adam reads weight, gradient and two moments and writes three of them, 28 bytes per number; the gradient
  is cleared before and added to, 12 more for a table. Each of the batch's embeddings is read and its gradient
  written, and the head reads and writes its activations once forward and once backward: 6 x 4 bytes per number of (B,
  S), and the same again for a lift. Shuffled ids are read and copied: 12 bytes each.
- Operations. Two per weight of a matrix and per row, three times: forward, for the input, for the weight.

The limit is the larger of bytes / bandwidth and operations / peak; `share` is the limit divided by the measured time.
"""

import argparse
import json
import statistics
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from encoded_rows import SHAPES, write

import fieldwise as fw
from fieldwise.core.registry import resolve
from fieldwise.data.store import Split
from fieldwise.models import MODELS
from fieldwise.tables import deterministic_sum
from fieldwise.train import loop
from fieldwise.train.stages import Pretrain

HERE: Final = Path(__file__).resolve().parent
PEAKS: Final[Mapping[str, tuple[float, float, float]]] = {
    "NVIDIA H200": (4.8e12, 67e12, 990e12),
    "NVIDIA H100": (3.35e12, 67e12, 990e12),
}
"""Bytes, float32 operations and bfloat16 operations per second, from the data sheets."""


def train(shape: str, rows: int, model: str, batch: int, epochs: int, **settings: Any) -> dict[str, Any]:
    """Trains without regularity; returns the time of an epoch and its ratio to the limit."""
    with tempfile.TemporaryDirectory() as folder:
        write(SHAPES[shape], rows, Path(folder))
        ids, labels = np.load(Path(folder) / "ids.npy"), np.load(Path(folder) / "labels.npy")
    schema = fw.Schema.of(**{f"f{j}": c for j, c in enumerate(SHAPES[shape].cardinalities)})
    base = resolve("model", MODELS, model)()
    task = fw.Task(schema, Split(ids, labels), Split(ids[:batch], labels[:batch]), base, device="cuda")
    training = Pretrain(batch=batch, epochs=epochs, patience=epochs, regularity={"strength": 0.0}, **settings)
    torch.cuda.reset_peak_memory_stats()
    trained = fw.pretrain(task, training)
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


def step_limit(task: fw.Task, model: Any, batch: int, precision: str) -> float:
    """Returns the minimum seconds of a step, as the module docstring counts them."""
    bandwidth, single, half = PEAKS[torch.cuda.get_device_name()]
    size, columns = model.size(), task.layout.columns
    tables = size.embedding + size.first_order
    bytes_moved = 28 * (tables + size.dense) + 12 * tables + 12 * batch * len(task.schema)
    bytes_moved += 4 * batch * columns * 6 * (2 if hasattr(model.head, "lift") else 1)
    matrices = sum(weight.numel() for weight in model.head.parameters() if weight.dim() == 2)
    operations = 6 * batch * matrices
    return max(bytes_moved / bandwidth, operations / (half if precision == "bfloat16" else single))


def ways_of_summing(width: int, batch: int = 8192) -> dict[str, float]:
    """Returns the milliseconds of a table's gradient for rows of Criteo's shape, summed in three ways."""
    with tempfile.TemporaryDirectory() as folder:
        write(SHAPES["criteo"], batch, Path(folder))
        ids = np.load(Path(folder) / "ids.npy")
    counts = np.array(SHAPES["criteo"].cardinalities)
    rows = torch.from_numpy((ids + counts.cumsum() - counts).astype(np.int32)).cuda().flatten()
    count, values = int(counts.sum()), torch.randn(len(rows), width, device="cuda")
    ways: dict[str, Callable[[], torch.Tensor]] = {
        "sorted, by torch": lambda: torch.ops.aten.embedding_dense_backward(values, rows, count, -1, False),
        "in whole numbers": lambda: deterministic_sum.sums(values, rows, count),
        "floats in any order": lambda: torch.zeros(count, width, device="cuda").index_add_(0, rows, values),
    }
    return {name: round(timed(way), 4) for name, way in ways.items()}


def timed(work: Callable[[], torch.Tensor], times: int = 50) -> float:
    """Returns the milliseconds of some kernels, recorded once and replayed."""
    for _ in range(3):
        work()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    graph.replay()
    began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    began.record()
    for _ in range(times):
        graph.replay()
    ended.record()
    torch.cuda.synchronize()
    return float(began.elapsed_time(ended)) / times


def main() -> None:
    """Measures both shapes and writes the JSON file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=HERE / "results" / "gpu.json")
    parser.add_argument("--commit", help="commit of the code that runs; default: the one checked out")
    given = parser.parse_args()
    cases: list[tuple[str, dict[str, Any]]] = []
    for model in ("fm", "deepfm", "autoint", "dcnv2"):
        cases.append((f"movielens {model}", {"shape": "movielens", "rows": 590_856, "model": model, "batch": 2048}))
    for model in ("fm", "dcnv2"):
        for precision in ("float32", "bfloat16"):
            more = {"shape": "criteo", "rows": 200 * 8192, "model": model, "batch": 8192, "precision": precision}
            cases.append((f"criteo {model} {precision}", more))
    results = {}
    for name, case in cases:
        results[name] = train(**case, epochs=8)
        print(f"{name:26} {results[name]}", flush=True)
    captured = loop.Captured
    loop.Captured = lambda step: step  # type: ignore[assignment, misc]
    results["movielens dcnv2, step by step"] = train("movielens", 590_856, "dcnv2", 2048, 4)
    loop.Captured = captured  # type: ignore[misc]
    print(f"{'movielens dcnv2, step by step':26} {results['movielens dcnv2, step by step']}")
    sums = {f"width {width}": ways_of_summing(width) for width in (16, 1)}
    print(f"ms of a table's gradient: {sums}")
    git = ["git", "rev-parse", "--short", "HEAD"]
    commit = given.commit or subprocess.run(git, cwd=HERE, capture_output=True, text=True, check=False).stdout.strip()
    about = {
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "commit": commit,
    }
    given.out.write_text(json.dumps({**about, "results": results, "sums": sums}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
