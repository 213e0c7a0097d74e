"""What a compact model saves while serving: latency, memory and disk against the full model, in every runtime.

From ids to the probability, so that the runtimes are given the same. The full model is built anew from the compact
model's settings: how long it takes and how much it holds does not hang on its weights.
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
from fieldwise.exports.folder import WEIGHTS, export, load
from fieldwise.exports.onnx import ids_to_onnx
from fieldwise.exports.predictor import Probability
from fieldwise.exports.program import compile_ahead
from fieldwise.models import MODELS
from fieldwise.models.model import CTRModel, Model

BATCHES: Final = (1, 256, 4096)


class Measurement(Record):
    """One model in one runtime."""

    model: Literal["full", "compact"]
    runtime: Runtime
    disk: int
    """Bytes of the model's file."""
    measured: Measured


class Bench(Record):
    """All cells, and why some are missing."""

    cells: list[Measurement]
    missing: list[str]


def bench(
    folder: Path,
    seconds: float = 2.0,
    threads: int = 1,
    batches: Sequence[int] = BATCHES,
    say: Callable[[str], None] = lambda _: None,
    model: type[Model] | None = None,
) -> Bench:
    """Measures a model folder; each cell in a process of its own, one after the other.

    `model` is the class of a model that is not the library's; the processes import it too.
    """
    small = load(folder, model=model).model
    own = name_of_class(model, MODELS) if model else None
    with torch.random.fork_rng(devices=[]):
        full = small.settings.build(small.layout.schema.layout(small.settings.width)).eval()
    cells, missing = [], []
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        for kind, built in (("full", full), ("compact", small)):
            for runtime, write in _WRITERS.items():
                say(f"{kind}, {runtime}")
                try:
                    path, file = write(Probability(built).eval(), work / f"{kind}-{runtime}")
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
                cell = Measurement(model=kind, runtime=runtime, disk=file.stat().st_size, measured=_run(order))
                cells.append(cell)
    return Bench(cells=cells, missing=list(dict.fromkeys(missing)))


def _run(order: Order) -> Measured:
    paths = os.pathsep.join(path for path in sys.path if path)  # what imported the model here, and nothing more
    done = subprocess.run(
        [sys.executable, "-P", "-m", "fieldwise.bench.process"],
        input=order.model_dump_json(),
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": str(order.threads), **({"PYTHONPATH": paths} if order.model else {})},
    )
    if done.returncode:
        raise RunError(f"{order.runtime} failed: {(done.stderr.strip().splitlines() or ['no word'])[-1]}")
    return Measured.model_validate_json(done.stdout)


def _ids(model: CTRModel, rows: int, path: Path) -> Path:
    """Ids by lot, each as likely as another, of the fields that the model needs."""
    schema, draw = model.layout.schema, np.random.default_rng(0)
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
"""How each runtime's file is written: what to load, and the file that holds the weights."""
