"""Measure the cost of the pruner and the speedup of a compact model, for docs/any-model.md.

    python benchmarks/pruner.py --out benchmarks/results/pruner.json

A DCN-V2-like module of 39 fields x 16 columns, a quarter of the columns kept. Times are CPU times of one thread, since
the machine may be shared, and the compared variants take turns. Times are medians over turns; ratios compare one turn.
"""

import argparse
import io
import json
import platform
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

import fieldwise as fw
from fieldwise.pruning.folding import fold

FIELDS, WIDTH, ROWS, TRAIN = 39, 16, 2_000, 2048


class DCNv2(nn.Module):
    """Parallel cross network and MLP, with one nn.Embedding per field."""

    def __init__(self) -> None:
        super().__init__()
        size = FIELDS * WIDTH
        self.tables = nn.ModuleList(nn.Embedding(ROWS, WIDTH) for _ in range(FIELDS))
        self.cross = nn.ModuleList(nn.Linear(size, size) for _ in range(3))
        self.deep = nn.Sequential(nn.Linear(size, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU())
        self.out = nn.Linear(size + 64, 1)

    def forward(self, ids: Tensor) -> Tensor:
        """Return logits (B,) for ids (B, fields)."""
        columns = ids.unbind(1)
        first = torch.cat([table(column) for table, column in zip(self.tables, columns, strict=True)], 1)
        v = first
        for layer in self.cross:
            v = first * layer(v) + v
        logits: Tensor = self.out(torch.cat([v, self.deep(first)], 1)).squeeze(1)
        return logits


def turns(work: dict[str, Callable[[], Any]], rounds: int, least: float = 0.02) -> dict[str, list[float]]:
    """Return CPU seconds per call of each function, measured in turns."""
    counts = {}
    for name, call in work.items():
        call()
        started = time.process_time()
        call()
        counts[name] = max(1, int(least / (time.process_time() - started)))
    found: dict[str, list[float]] = {name: [] for name in work}
    for _ in range(rounds):
        for name, call in work.items():
            started = time.process_time()
            for _ in range(counts[name]):
                call()
            found[name].append((time.process_time() - started) / counts[name])
    return found


def ratio(found: dict[str, list[float]], above: str, below: str) -> float:
    """Return the median of the ratios within a turn."""
    return round(median(a / b for a, b in zip(found[above], found[below], strict=True)), 3)


def training(rounds: int, batch: int) -> dict[str, Any]:
    """Time a training step without and with hooks, and a gate step."""
    plain, gated = DCNv2(), DCNv2()
    ids, labels = torch.randint(0, ROWS, (batch, FIELDS)), torch.randint(0, 2, (batch,)).float()
    pruner = fw.Pruner(gated, (ids,), fw.searches.HAM(), "25%")

    def loss(model: nn.Module) -> Tensor:
        return functional.binary_cross_entropy_with_logits(model(ids), labels)

    def step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        optimizer.zero_grad()
        loss(model).backward()
        optimizer.step()

    one, two = torch.optim.Adam(plain.parameters()), torch.optim.Adam(gated.parameters())
    found = turns(
        {
            "training step": lambda: step(plain, one),
            "training step with hooks": lambda: step(gated, two),
            "gate step": lambda: pruner.step(lambda: loss(gated)),
        },
        rounds,
    )
    return {
        "batch": batch,
        "milliseconds": {name: round(1e3 * median(times), 3) for name, times in found.items()},
        "hooks": ratio(found, "training step with hooks", "training step"),
        "gate_step": ratio(found, "gate step", "training step"),
    }


def session(model: nn.Module, ids: Tensor) -> Callable[[Tensor], Any]:
    """Load the model in ONNX Runtime with one thread."""
    import onnxruntime

    shapes = ({0: torch.export.Dim.DYNAMIC},)
    program = torch.onnx.export(model, (ids,), dynamic_shapes=shapes, dynamo=True, verbose=False)
    assert program is not None
    stored = io.BytesIO()
    program.save(stored)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    runs = onnxruntime.InferenceSession(stored.getvalue(), options)
    name = runs.get_inputs()[0].name
    return lambda given: runs.run(None, {name: given.numpy()})[0]


def serving(rounds: int) -> dict[str, Any]:
    """Time the full, compact and folded models at batch sizes 1 and 256."""
    full, ids = DCNv2().eval(), torch.randint(0, ROWS, (64, FIELDS))
    pruner = fw.Pruner(full, (ids,), fw.searches.Random(), f"{FIELDS * WIDTH // 4} columns")
    small = pruner.compact()
    pruner.remove()
    models = {"full": full, "compact": small, "folded": fold(small, (ids,))}
    eager = {name: torch.no_grad()(model) for name, model in models.items()}
    graphs = {name: session(model, ids) for name, model in models.items()}
    report: dict[str, Any] = {"columns": [FIELDS * WIDTH, pruner.mask.columns]}
    report["parameters"] = {name: sum(w.numel() for w in model.parameters()) for name, model in models.items()}
    del report["parameters"]["folded"]
    for kind, calls in (("eager", eager), ("onnxruntime", graphs)):
        report[kind] = {}
        for batch in (1, 256):
            given = torch.randint(0, ROWS, (batch, FIELDS))
            found = turns({name: lambda call=call, given=given: call(given) for name, call in calls.items()}, rounds)
            report[kind][str(batch)] = {
                "milliseconds": {name: round(1e3 * median(times), 4) for name, times in found.items()},
                "full_over_compact": ratio(found, "full", "compact"),
                "full_over_folded": ratio(found, "full", "folded"),
            }
    return report


def main() -> None:
    """Measure, and write the JSON file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--batch", type=int, default=TRAIN)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    torch.set_num_threads(1)
    record = {
        "machine": f"{platform.machine()}, CPU time of one thread",
        "torch": torch.__version__,
        "rounds": given.rounds,
        "training": training(given.rounds, given.batch),
        "serving": serving(given.rounds),
    }
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(json.dumps(record, indent=1) + "\n")
    print(json.dumps(record, indent=1))


if __name__ == "__main__":
    main()
