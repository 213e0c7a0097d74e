"""Latency, memory and disk of a compact model against the full model, in every runtime.

Models go from ids to the probability, so that all runtimes get the same input. The full model has random weights,
built from the compact model's settings: latency and memory do not depend on the weights.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Literal

import numpy as np
import torch

from fieldwise.bench.process import Measured, Order, Runtime
from fieldwise.core.errors import RunError
from fieldwise.core.records import Record
from fieldwise.core.registry import name_of_class
from fieldwise.core.schema import Schema
from fieldwise.core.store import Store
from fieldwise.exports.folder import export, in_store, load
from fieldwise.exports.info import WEIGHTS
from fieldwise.exports.onnx import ids_to_onnx
from fieldwise.exports.predictor import Probability
from fieldwise.exports.program import compile_ahead
from fieldwise.models import MODELS
from fieldwise.models.factory import Build, model_class
from fieldwise.models.model import CTRModel, Model
from fieldwise.models.stored import StoredModel, store_of

BATCHES: Final = (1, 256, 4096)


class Measurement(Record):
    """One model in one runtime."""

    model: Literal["full", "compact"]
    store: str = "float32"
    """The stored type of its tables."""
    runtime: Runtime
    disk: int
    """Bytes of the model's file."""
    measured: Measured


class Bench(Record):
    """All measurements, and the reasons for missing ones."""

    cells: list[Measurement]
    missing: list[str]


def bench(
    folder: Path,
    seconds: float = 2.0,
    threads: int = 1,
    batches: Sequence[int] = BATCHES,
    say: Callable[[str], None] = lambda _: None,
    model: type[Model] | Build | None = None,
    stores: Sequence[Store] = (),
) -> Bench:
    """Measures a model folder. Each model and runtime runs in its own process, one after another.

    `model` is the factory or class of a model outside the library; the processes import it too. A float32 model is also
    measured in each of `stores`.
    """
    small = load(folder, model=model).model
    own = name_of_class(model_class(model), MODELS) if model else None
    with torch.random.fork_rng(devices=[]):
        full = small.settings.new(small.schema).eval()
    cells, missing = [], []
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        built_in: list[tuple[Literal["full", "compact"], CTRModel | StoredModel]] = [("full", full), ("compact", small)]
        built_in += [("compact", in_store(small, store)) for store in stores]
        for runtime, write in _WRITERS.items():
            for place, (kind, built) in enumerate(built_in):
                say(f"{kind}, {store_of(built)}, {runtime}")
                try:
                    path, file = write(Probability(built).eval(), work / f"{place}-{runtime}")
                except RunError as error:
                    missing.append(f"{runtime}: {error}")
                    continue
                ids = _ids(built, max(batches), work / f"{kind}.npy")
                order = Order(
                    runtime=runtime,
                    path=path,
                    ids=ids,
                    batches=list(batches),
                    seconds=seconds,
                    threads=threads,
                    model=own,
                )
                cell = Measurement(
                    model=kind,
                    store=store_of(built).label,
                    runtime=runtime,
                    disk=file.stat().st_size,
                    measured=_run(order),
                )
                cells.append(cell)
    return Bench(cells=cells, missing=list(dict.fromkeys(missing)))


def _run(order: Order) -> Measured:
    paths = os.pathsep.join(path for path in sys.path if path)  # so that the process can import the model's class
    done = subprocess.run(
        [sys.executable, "-P", "-m", "fieldwise.bench.process"],
        input=order.model_dump_json(),
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": str(order.threads), **({"PYTHONPATH": paths} if order.model else {})},
    )
    if done.returncode:
        raise RunError(f"{order.runtime} failed: {(done.stderr.strip().splitlines() or ['no message'])[-1]}")
    return Measured.model_validate_json(done.stdout)


def _ids(model: CTRModel | StoredModel, rows: int, path: Path) -> Path:
    """Writes uniformly random ids of the fields that the model needs."""
    schema, draw = model.schema, np.random.default_rng(0)
    fields = Schema(tuple(field for field in schema.fields if field.name in model.needs)).fields
    columns = [draw.integers(0, field.cardinality, (rows, field.length)) for field in fields]
    np.save(path, np.concatenate(columns, axis=1).astype(np.int32))
    return path


def _eager(model: Probability, path: Path) -> tuple[Path, Path]:
    export(model.model, path)
    return path, path / WEIGHTS


def _onnx(model: Probability, path: Path) -> tuple[Path, Path]:
    written = ids_to_onnx(model, path.with_suffix(".onnx"))
    return written[0], written[-1]


def _aot(model: Probability, path: Path) -> tuple[Path, Path]:
    package = path.with_suffix(".pt2")
    compile_ahead(model, package)
    return package, package


_WRITERS: Final[dict[Runtime, Callable[[Probability, Path], tuple[Path, Path]]]] = {
    "eager": _eager,
    "onnxruntime": _onnx,
    "aotinductor": _aot,
}
"""Writes each runtime's model; returns the path to load, and the file that holds the weights."""
