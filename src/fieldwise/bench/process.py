"""Measures latency and resident memory of one model in one runtime, in its own process.

`python -m fieldwise.bench.process` reads an `Order` as JSON and prints a `Measured` as JSON.
"""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fieldwise.core.records import Record
from fieldwise.core.resident import resident_memory

Runtime = Literal["eager", "onnxruntime", "aotinductor"]
Call = Callable[[NDArray[np.int32]], Any]


class Order(Record):
    """A measurement to make."""

    runtime: Runtime
    path: Path
    """The model's folder, ONNX graph or compiled package."""
    ids: Path
    """A .npy file with as many rows of ids as the largest batch."""
    batches: list[int]
    seconds: float
    """Seconds per batch size, after at most one second of warm-up."""
    threads: int
    model: str | None = None
    """`package.module:build` of a model outside the library, if any."""


class Latency(Record):
    """Latency of one batch size."""

    batch: int
    p50: float
    """Milliseconds."""
    p99: float
    """Milliseconds."""
    calls: int


class Measured(Record):
    """The result of a measurement."""

    resident: int
    """Bytes resident in the whole process after the first prediction."""
    model: int
    """Bytes by which the process grew since its libraries were imported."""
    latencies: list[Latency]


def measure(order: Order) -> Measured:
    """Loads the model, predicts, and returns latency and memory."""
    load = {"eager": _eager, "onnxruntime": _onnx, "aotinductor": _aot}[order.runtime]
    ids = np.load(order.ids)
    start = load(order)
    before = resident_memory()
    call = start()
    call(ids[:1])
    resident = resident_memory()
    latencies = [_latency(call, np.ascontiguousarray(ids[:batch]), order.seconds) for batch in order.batches]
    return Measured(resident=resident, model=resident - before, latencies=latencies)


def _eager(order: Order) -> Callable[[], Call]:
    import torch

    from fieldwise.exports.folder import load
    from fieldwise.models.factory import model_named

    torch.set_num_threads(order.threads)
    own = model_named(order.model) if order.model else None
    return lambda: load(order.path, model=own).of_ids


def _onnx(order: Order) -> Callable[[], Call]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = order.threads

    def start() -> Call:
        session = onnxruntime.InferenceSession(order.path, options)
        return lambda ids: session.run(None, {"ids": ids})

    return start


def _aot(order: Order) -> Callable[[], Call]:
    import torch

    torch.set_num_threads(order.threads)

    def start() -> Call:
        run = torch._inductor.aoti_load_package(str(order.path))
        return lambda ids: run(torch.from_numpy(ids))

    return start


def _latency(call: Call, ids: NDArray[np.int32], seconds: float) -> Latency:
    warm = time.perf_counter() + min(1.0, seconds)
    while time.perf_counter() < warm:
        call(ids)
    taken: list[float] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(taken) < 10:
        started = time.perf_counter()
        call(ids)
        taken.append(1000 * (time.perf_counter() - started))
    return Latency(
        batch=len(ids), p50=float(np.quantile(taken, 0.5)), p99=float(np.quantile(taken, 0.99)), calls=len(taken)
    )


if __name__ == "__main__":
    sys.stdout.write(measure(Order.model_validate_json(sys.stdin.read())).model_dump_json() + "\n")
