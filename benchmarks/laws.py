"""Measures how time and memory grow with rows, columns, batch, fields, width and ids, and fits an exponent to each.

    python benchmarks/laws.py
    python benchmarks/laws.py --only train --out OTHER.json

Every point runs in a process of its own with one thread; time is CPU time, so other load on the machine matters little,
and memory is the peak resident set above that after the imports. Of time and memory y at sizes x, `exponent` is the
slope of log y over log x by least squares, and `last` the slope between the two largest sizes. A law breaks where they
differ: a fixed cost dominates small sizes (last > exponent), or something else takes over at large ones.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import numpy as np
from against import machine

HERE: Final = Path(__file__).resolve().parent
STEPS: Final = 12
"""Training steps that are timed, after as many that are not."""


@dataclass(frozen=True)
class Point:
    """What is measured at one size."""

    what: str
    """prepare, wide, predict, or the name of a model that trains."""
    rows: int = 0
    columns: int = 39
    batch: int = 2048
    fields: int = 20
    width: int = 16
    ids: int = 1_000_000
    """Rows of all tables together."""

    def seconds_and_mib(self, folder: Path) -> tuple[float, float]:
        """Returns CPU seconds (per step of a training) and MiB of this point, in this process."""
        work = {"prepare": _prepare, "wide": _wide, "predict": _predict}.get(self.what, _train)
        return work(self, folder)


LAWS: Final[dict[str, tuple[str, list[Point]]]] = {
    "prepare, rows": ("rows", [Point("prepare", rows=rows) for rows in (62_500, 125_000, 250_000, 500_000, 1_000_000)]),
    "prepare, columns": ("columns", [Point("wide", columns=columns) for columns in (50, 100, 200, 400, 800)]),
    "predict, rows": ("rows", [Point("predict", rows=rows) for rows in (125_000, 250_000, 500_000, 1_000_000)]),
    **{
        f"train {model}, {key}": (key, [replace(Point(model), **{key: size}) for size in sizes])
        for model in ("fm", "dcnv2")
        for key, sizes in {
            "batch": (512, 2_048, 8_192, 32_768),
            "fields": (10, 20, 40, 80),
            "width": (8, 16, 32, 64),
            "ids": (10_000, 100_000, 1_000_000, 10_000_000),
        }.items()
    },
}
"""By name: the size that grows, and the points."""


def _clocked(work: Any) -> tuple[float, float]:
    from fieldwise.core.resident import forget_peak_resident, peak_resident, resident_memory

    forget_peak_resident()
    before, began = resident_memory(), time.process_time()
    seconds = work()
    return seconds or time.process_time() - began, (peak_resident() - before) / 2**20


def _prepare(point: Point, folder: Path) -> tuple[float, float]:
    from criteo_like import write

    from fieldwise.data.criteo import Criteo
    from fieldwise.data.engines import duckdb, expressions  # noqa: F401
    from fieldwise.data.prepare import prepare

    write(folder / "rows.txt", point.rows)
    return _clocked(lambda: prepare(Criteo(raw=folder / "rows.txt"), folder / "data") and None)


def _wide(point: Point, folder: Path) -> tuple[float, float]:
    from prepare import wide_rows

    from fieldwise.data.engines import duckdb, expressions  # noqa: F401
    from fieldwise.data.prepare import prepare
    from fieldwise.data.table import Table

    wide_rows(folder / "rows.csv", point.columns)
    source = Table(raw=folder / "rows.csv", label="click")
    return _clocked(lambda: prepare(source, folder / "data") and None)


def _predict(point: Point, folder: Path) -> tuple[float, float]:
    import torch
    from criteo_like import write
    from predict import make_rows

    from fieldwise.data.criteo import Criteo
    from fieldwise.data.prepare import prepare
    from fieldwise.exports.predict import predict_file
    from fieldwise.exports.predictor import Predictor
    from fieldwise.models.dcnv2 import DCNv2

    torch.set_num_threads(1)
    write(folder / "rows.txt", 20_000)
    data = prepare(Criteo(raw=folder / "rows.txt", tiers=0), folder / "data")
    predictor = Predictor(DCNv2().build(data.schema.layout(4)).eval(), data.encoder)
    make_rows(folder / "rows.parquet", point.rows)
    return _clocked(lambda: predict_file(predictor, folder / "rows.parquet", folder / "out.parquet") and None)


def _train(point: Point, folder: Path) -> tuple[float, float]:
    import torch
    from encoded_rows import Shape, write

    import fieldwise as fw
    from fieldwise.core.registry import resolve
    from fieldwise.core.watcher import Watcher
    from fieldwise.data.store import Split
    from fieldwise.models import MODELS
    from fieldwise.train.pretraining import Pretrain

    class Clock(Watcher):
        """Records the CPU time at the end of every step of the second epoch."""

        def __init__(self) -> None:
            self.ends: list[float] = []

        def step(self, stage: str, epoch: int, step: int, steps: int) -> None:
            self.ends += [time.process_time()] if epoch == 2 else []

    torch.set_num_threads(1)
    cardinalities = (point.ids // point.fields,) * point.fields
    write(Shape("rows", cardinalities, 0.3, 0), STEPS * point.batch, folder)
    ids, labels = np.load(folder / "ids.npy"), np.load(folder / "labels.npy")
    few = Split(ids[:2048], labels[:2048])
    schema = fw.Schema.of(**{f"f{j}": c for j, c in enumerate(cardinalities)})
    task = fw.Task(
        schema, Split(ids, labels), few, resolve("model", MODELS, point.what)(width=point.width), device="cpu"
    )
    clock = Clock()

    def work() -> float:
        fw.pretrain(task, Pretrain(batch=point.batch, epochs=2, patience=2), folder / "checkpoint", watcher=clock)
        return float(np.median(np.diff(clock.ends)))

    return _clocked(work)


def measure(point: Point) -> dict[str, float]:
    """Measures a point in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, "--inside", json.dumps(asdict(point)), "--folder", folder]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    seconds, mib = json.loads(done.stdout.splitlines()[-1])
    return {"cpu_s": float(f"{seconds:.3g}"), "mib": float(f"{mib:.3g}")}


def fitted(sizes: list[int], values: list[float]) -> dict[str, float]:
    """Returns the exponent of all points, and that of the last two."""
    x, y = np.log(sizes), np.log(values)
    return {
        "exponent": round(float(np.polyfit(x, y, 1)[0]), 2),
        "last": round(float((y[-1] - y[-2]) / (x[-1] - x[-2])), 2),
    }


def table(laws: dict[str, Any]) -> list[str]:
    """Returns the lines of a Markdown table."""
    lines = ["| law | sizes | CPU s | exponent | last | MiB | exponent | last |", "|---|---|---|---|---|---|---|---|"]
    for name, law in laws.items():
        first, *_, end = law["points"]
        cells = [name, f"{law['sizes'][0]:,} to {law['sizes'][-1]:,}"]
        for key in ("cpu_s", "mib"):
            fit = law[key]
            cells += [f"{first[key]:g} to {end[key]:g}", f"{fit['exponent']:.2f}", f"{fit['last']:.2f}"]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def main() -> None:
    """Measures the chosen laws, prints their table and writes a JSON file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="only laws whose name contains this")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "laws.json")
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.inside:
        print(json.dumps(Point(**json.loads(given.inside)).seconds_and_mib(given.folder)))
        return
    about = {"machine": machine(), "versions": {name: version(name) for name in ("torch", "duckdb", "pyarrow")}}
    laws: dict[str, Any] = {}
    for name, (key, points) in LAWS.items():
        if given.only in name:
            found, sizes = [measure(point) for point in points], [getattr(point, key) for point in points]
            fits = {unit: fitted(sizes, [one[unit] for one in found]) for unit in ("cpu_s", "mib")}
            laws[name] = {"sizes": sizes, "points": found, **fits}
            print(name, laws[name], flush=True)
    given.out.write_text(json.dumps({**about, "laws": laws}, indent=1) + "\n")
    print("\n".join(table(laws)))


if __name__ == "__main__":
    main()
