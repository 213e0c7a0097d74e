"""One model in one runtime in a process of its own: how long predictions take, and how much memory is resident.

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
    """What is to be measured."""

    runtime: Runtime
    path: Path
    """The model's folder, graph or package."""
    ids: Path
    """Rows of ids, as many as the largest batch has."""
    batches: list[int]
    seconds: float
    """For each batch size, after one second of warming up at most."""
    threads: int
    model: str | None = None
    """The class of a model that is not the library's, where there is one."""


class Latency(Record):
    """How long a batch takes."""

    batch: int
    p50: float
    """Milliseconds."""
    p99: float
    """Milliseconds."""
    calls: int


class Measured(Record):
    """What was measured."""

    resident: int
    """Bytes of the whole process, after the first row."""
    model: int
    """By how many of them it grew since its libraries were imported."""
    latencies: list[Latency]


def measure(order: Order) -> Measured:
    """Loads the model and predicts."""
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

    from fieldwise.core.registry import resolve
    from fieldwise.exports.folder import load
    from fieldwise.models import MODELS

    torch.set_num_threads(order.threads)
    own = resolve("model", MODELS, order.model) if order.model else None
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
