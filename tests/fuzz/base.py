"""The files to mutate: a raw log in four formats, a dataset, a run with a checkpoint, and an exported model."""

import gzip
import itertools
import os
import random
import shutil
import time
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from fieldwise.core.records import Epoch
from fieldwise.core.watcher import Watcher
from fieldwise.pipeline import seed_run
from fieldwise.pipeline import stages as pipeline
from fieldwise.pipeline.settings import RunSettings

ROWS: Final = 240
SETTINGS: Final = """\
[run]
budgets = ["6 columns"]
seeds = [0]
device = "cpu"

[data]
name = "table"
raw = "raw/clicks.csv"
label = "click"

[data.fields.price]
kind = "quantile"
bins = 4

[model]
name = "dcnv2"
width = 4
cross_layers = 1
hidden = [4]

[pretrain]
epochs = 1
batch = 64

[search]
name = "ham"
epochs = 2
batch = 64

[retrain]
epochs = 1
batch = 64
"""
"""Settings of a run that takes about a second."""


class _Stop(Watcher):
    """Stops a search after its first epoch, so that its checkpoint remains."""

    def epoch(self, stage: str, epoch: Epoch) -> None:
        if "search" in stage and epoch.epoch == 1:
            raise KeyboardInterrupt


def build(folder: Path, model: str | None = None) -> None:
    """Makes all files in a folder, which becomes the working directory; paths in the files are relative.

    With a factory, the exported model is one of its modules, and nothing else is made of it.
    """
    os.chdir(folder)
    _stop_clocks()
    raw = Path("raw")
    raw.mkdir()
    write_raw(raw, *columns())
    Path("settings.toml").write_text(SETTINGS)
    values = tomllib.loads(SETTINGS)
    pipeline.run(RunSettings.parse(values), Path("run"))
    Path("run/dataset").rename("dataset")
    values["run"] |= {"dataset": "dataset", "budgets": ["6 columns", "9 columns"]}
    _stop_second(Path("run"), values)
    shutil.copytree("run/seed-0/compact/6-columns", "model")
    if model:
        shutil.rmtree("model")
        values["run"] |= {"budgets": ["6 columns"]}
        pipeline.run(RunSettings.parse({**values, "model": {"name": model}}), Path("own"))
        Path("own/seed-0/compact/6-columns").rename("model")


def _stop_clocks() -> None:
    """Makes times and memory in records equal in every build, so that the number determines a case."""
    ticks = itertools.count(1)
    for name in ("time", "perf_counter", "monotonic"):
        setattr(time, name, lambda: next(ticks) / 64)
    setattr(seed_run, "peak_memory", lambda: 2**28)  # noqa: B010, mypy would forbid the assignment


def _stop_second(run: Path, values: dict[str, Any]) -> None:
    """Stops the run's second budget in the middle of its search."""
    try:
        pipeline.run(RunSettings.parse(values), run, _Stop())
    except KeyboardInterrupt:
        return
    raise AssertionError("the search was not stopped")


def columns() -> tuple[list[str], list[Sequence[object]]]:
    """Returns clicks of users on items, with a number and several tags per row."""
    draw = random.Random(0)
    header = ["click", "user", "item", "price", "tags"]
    rows: list[Sequence[object]] = []
    for _ in range(ROWS):
        user, item = draw.randrange(20), draw.randrange(12)
        click = int(draw.random() < (0.8 if (user + item) % 2 else 0.2))
        rows.append((click, f"u{user}", item, round(draw.random() * 9, 2), ["new", "big", "red"][: 1 + item % 3]))
    return header, rows


def write_raw(folder: Path, header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Writes the same rows as CSV, TSV, gzipped CSV and Parquet."""

    def cell(value: object) -> str:
        return "|".join(value) if isinstance(value, list) else str(value)

    for name, mark in (("clicks.csv", ","), ("clicks.tsv", "\t")):
        lines = [mark.join(header), *(mark.join(map(cell, row)) for row in rows)]
        (folder / name).write_text("\n".join(lines) + "\n")
    text = (folder / "clicks.csv").read_bytes()
    (folder / "clicks.csv.gz").write_bytes(gzip.compress(text, mtime=0))
    pq.write_table(
        pa.table({name: [row[place] for row in rows] for place, name in enumerate(header)}), folder / "clicks.parquet"
    )
