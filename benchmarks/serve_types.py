"""Measures latency of the same compact model in every stored type, side by side in one process and one thread.

    python benchmarks/serve_types.py

The models are shaped like that of `serve.py` (39 fields, a million rows, DCN-V2): 148 random columns of 592, so that
widths are mixed, and one width of 4 for all fields. In each round every type gets one turn, so that other work on the
machine slows all alike; the results are medians over rounds, and the median over rounds of the ratio to float32 in the
same round.
"""

import argparse
import json
import os
import platform
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import onnxruntime
import torch
from serve import HERE, schema

from fieldwise.core.budget import Budget
from fieldwise.core.select import select
from fieldwise.core.store import KINDS, Store
from fieldwise.exports.onnx import ids_to_onnx
from fieldwise.exports.predictor import Probability
from fieldwise.exports.program import compile_ahead
from fieldwise.models.compact import compact
from fieldwise.models.dcnv2 import DCNv2
from fieldwise.models.model import CTRModel
from fieldwise.models.stored import stored

Call = Callable[[], Any]


def models() -> dict[str, CTRModel]:
    """Returns the models in float32."""
    full = DCNv2().build(schema().layout(16)).eval()
    scores = np.random.default_rng(0).random(full.layout.columns)
    mixed = compact(full, select(scores, full.layout, Budget.percent(25, "columns")))
    return {"mixed widths": mixed, "equal widths": DCNv2().build(schema().layout(4)).eval()}


def runtimes(model: CTRModel, folder: Path) -> dict[str, dict[str, Callable[[torch.Tensor], Any]]]:
    """Returns what predicts from ids: runtime by stored type."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    found: dict[str, dict[str, Callable[[torch.Tensor], Any]]] = {"eager": {}, "onnxruntime": {}, "aotinductor": {}}
    for kind in KINDS:
        whole = Probability(model if kind == "float32" else stored(model, Store(kind))).eval()
        ids_to_onnx(whole, folder / f"{kind}.onnx")
        compile_ahead(whole, folder / f"{kind}.pt2")
        session = onnxruntime.InferenceSession(folder / f"{kind}.onnx", options)
        found["eager"][kind] = whole
        found["onnxruntime"][kind] = lambda ids, session=session: session.run(None, {"ids": ids.numpy()})  # type: ignore[misc]
        found["aotinductor"][kind] = torch._inductor.aoti_load_package(str(folder / f"{kind}.pt2"))
    return found


def side_by_side(calls: dict[str, Call], rounds: int, seconds: float) -> dict[str, dict[str, float]]:
    """Returns milliseconds per call and the ratio to float32 of each type, medians over rounds."""
    taken: dict[str, list[float]] = {kind: [] for kind in calls}
    for turn in range(rounds + 1):
        for kind, call in calls.items():
            times, end = [], time.perf_counter() + seconds
            while time.perf_counter() < end or len(times) < 5:
                started = time.perf_counter()
                call()
                times.append(1000 * (time.perf_counter() - started))
            if turn:  # the first round warms up
                taken[kind].append(median(times))
    ratios = {kind: [t / f for t, f in zip(own, taken["float32"], strict=True)] for kind, own in taken.items()}
    return {kind: {"ms": median(own), "ratio": median(ratios[kind])} for kind, own in taken.items()}


def main() -> None:
    """Measures all models and runtimes, and writes a JSON file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--seconds", type=float, default=0.1, help="per turn")
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 256])
    parser.add_argument("--out", type=Path, default=HERE / "results" / "serve_types.json")
    given = parser.parse_args()
    torch.set_num_threads(1)
    load, rows = os.getloadavg()[0], []
    for name, model in models().items():
        with tempfile.TemporaryDirectory() as folder, torch.no_grad():
            for runtime, by_type in runtimes(model, Path(folder)).items():
                for batch in given.batches:
                    draw = np.random.default_rng(0)
                    fields = [field for field in model.schema.fields if field.name in model.needs]
                    ids = torch.from_numpy(
                        np.stack([draw.integers(0, f.cardinality, batch) for f in fields], 1).astype(np.int32)
                    )
                    calls = {kind: lambda call=call: call(ids) for kind, call in by_type.items()}  # type: ignore[misc] # noqa: B023
                    found = side_by_side(calls, given.rounds, given.seconds)
                    rows.append({"model": name, "runtime": runtime, "batch": batch, "types": found})
                    shown = ", ".join(f"{kind} {one['ms']:.3f} ({one['ratio']:.2f})" for kind, one in found.items())
                    print(f"{name}, {runtime}, {batch} rows: {shown}", flush=True)
    record = {
        "rows": rows,
        "load_before": round(load, 1),
        "machine": {"cores": os.cpu_count(), "cpu": platform.machine(), "python": platform.python_version()},
        "versions": {name: version(name) for name in ("onnxruntime", "torch")},
    }
    given.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
