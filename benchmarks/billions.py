"""Works out time and memory for 4.4 billion rows and 100 million ids on 8 GPUs, from measured rates.

    python benchmarks/billions.py
    python benchmarks/billions.py --gather benchmarks/results/gather.json

Nothing of that size was run. Rates come from `benchmarks/results/`; `Assumed` holds what was not measured. The output
is the table of docs/scale.md. `--gather` measures one rate: shuffled rows per CPU second from a memory-mapped file.
"""

import argparse
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

RESULTS: Final = Path(__file__).resolve().parent / "results"
NUMBER: Final = 4
"""Bytes of a float32 or an id."""
Line = tuple[str, str, str]
"""A quantity, how it follows, and its value."""


@dataclass(frozen=True)
class Assumed:
    """What the table assumes."""

    rows: float = 4.4e9
    ids: float = 100e6
    fields: int = 39
    width: int = 16
    gpus: int = 8
    batch: int = 8_192
    """Rows per step and GPU."""
    cores: int = 64
    """Cores that prepare rows; the work divides evenly."""
    distinct: float = 17_000 / (2_048 * 39)
    """Distinct rows of tables per id that a batch reads (docs/speed.md, Criteo's shape)."""
    dense: int = 1_180_977
    """Weights outside tables, of DCN-V2 over 39 fields of 16 columns."""
    fast: float = 300e9
    """Bytes per second between GPUs of one machine (NVLink), in one direction."""
    slow: float = 12.5e9
    """Bytes per second between machines (100 Gbit/s)."""
    trainings: float = 2.7
    """A run with one budget, as a multiple of its pretraining (docs/speed.md)."""


@dataclass(frozen=True)
class Measured:
    """Rates of the results files."""

    raw: float
    """Bytes of text per row."""
    prepare: float
    """CPU seconds per row, from text to encoded rows."""
    train: float
    """Rows per second of DCN-V2 on one H200, in steps that are replayed as a CUDA graph."""
    launch: float
    """Seconds that a step takes longer if it is not replayed, as with tables updated by row."""
    gather: float
    """Shuffled rows per CPU second from a memory-mapped file, since a split of this size is not on the GPU."""

    @classmethod
    def read(cls, folder: Path = RESULTS) -> "Measured":
        """The rates of the committed results."""
        prepared = json.loads((folder / "prepare-45000000.json").read_text(encoding="utf-8"))
        gpu: dict[str, Any] = json.loads((folder / "gpu-none.json").read_text(encoding="utf-8"))["results"]
        steps = -(-590_856 // 2_048)  # of an epoch of MovieLens-1M's shape
        plain, replayed = gpu["movielens dcnv2, step by step"], gpu["movielens dcnv2"]
        return cls(
            raw=prepared["raw_bytes"] / prepared["rows"],
            prepare=prepared["results"]["fieldwise"]["cpu_s"] / prepared["rows"],
            train=gpu["criteo dcnv2 float32"]["samples_a_second"],
            launch=(plain["epoch_s"] - replayed["epoch_s"]) / steps,
            gather=json.loads((folder / "gather.json").read_text(encoding="utf-8"))["rows_a_cpu_second"],
        )


def lines(given: Assumed, found: Measured) -> list[Line]:
    """The lines of the table."""
    return [*_files(given, found), *_memory(given), *_time(given, found)]


def _files(given: Assumed, found: Measured) -> list[Line]:
    row = given.fields * NUMBER + 1
    hours = given.rows * found.prepare / 3600
    return [
        ("raw text", f"{found.raw:.0f} bytes per row", _bytes(given.rows * found.raw)),
        ("preparing", f"{found.prepare * 1e6:.1f} CPU s per million rows", f"{hours:.1f} CPU hours"),
        ("preparing, in parallel", f"{given.cores} cores", f"{60 * hours / given.cores:.0f} min"),
        ("encoded rows", f"{given.fields} ids and a label: {row} bytes per row", _bytes(given.rows * row)),
    ]


def _memory(given: Assumed) -> list[Line]:
    table = given.ids * given.width * NUMBER
    adam, adagrad = 3 * table, table + given.ids * NUMBER
    sharded = " or ".join(_bytes(size / given.gpus) for size in (adam, adagrad))
    return [
        ("tables", f"{given.ids / 1e6:.0f} million ids x {given.width} columns", _bytes(table)),
        ("tables with Adam, per GPU", "weights and two moments, on every GPU", _bytes(adam)),
        ("tables with row-wise Adagrad, per GPU", "weights and one number per id, on every GPU", _bytes(adagrad)),
        ("either, with tables sharded by rows", f"divided by {given.gpus}", sharded),
        ("a checkpoint", "weights and two moments", _bytes(adam)),
        ("order of an epoch, per process", "8 bytes per row, in host memory", _bytes(8 * given.rows)),
        ("a quarter of the columns in int8", "what is deployed, without scales", _bytes(table / NUMBER / 4)),
    ]


def _time(given: Assumed, found: Measured) -> list[Line]:
    work, gather, moved = given.batch / found.train, given.batch / found.gather, _moved(given)
    one = work + found.launch + gather
    fast, slow = ((one + moved / speed) / given.gpus for speed in (given.fast, given.slow))
    steps = given.rows / given.batch
    alone, near, far = (seconds * steps / 3600 for seconds in (one, fast, slow))
    parts = ", ".join(
        f"{1e3 * s:.1f} ms {n}" for n, s in (("work", work), ("launches", found.launch), ("rows", gather))
    )
    cells = alone * (3 + 36 * (given.trainings - 1)) / given.gpus
    within, between = (f"{speed / 1e9:g} GB/s between GPUs" for speed in (given.fast, given.slow))
    all_, run = f"{given.gpus} GPUs", near * given.trainings
    return [
        ("a step on one GPU", parts, f"{1e3 * one:.1f} ms"),
        ("received per step and GPU", "distinct rows of the other GPUs, and dense gradients", _bytes(moved)),
        ("an epoch on one GPU", f"{steps / 1e3:,.0f} thousand steps", f"{60 * alone:.0f} min"),
        (f"an epoch on {all_}, one machine", within, f"{60 * near:.0f} min"),
        (f"an epoch on {all_}, one per machine", between, f"{60 * far:.0f} min"),
        (f"a run on {all_}, one machine", f"{given.trainings} epochs in all", f"{60 * run:.0f} min"),
        ("36 cells and 3 pretrainings, one GPU each", f"{given.trainings - 1:.1f} epochs per cell", f"{cells:.0f} h"),
    ]


def _moved(given: Assumed) -> float:
    """Bytes that a GPU receives per step: row numbers and gradients from the others, and a ring sum of the rest."""
    rows = given.batch * given.fields * given.distinct * (given.gpus - 1)
    dense = 2 * (given.gpus - 1) / given.gpus * given.dense * NUMBER
    return rows * (8 + given.width * NUMBER) + dense


def _bytes(size: float) -> str:
    for unit, scale in (("TB", 1e12), ("GB", 1e9)):
        if size >= scale:
            return f"{size / scale:.{1 if size < 10 * scale else 0}f} {unit}"
    return f"{size / 1e6:.0f} MB"


def table(given: Assumed | None = None, found: Measured | None = None) -> str:
    """The table as Markdown."""
    rows = lines(given or Assumed(), found or Measured.read())
    return "\n".join(["| quantity | how | value |", "|---|---|---|", *(f"| {' | '.join(row)} |" for row in rows)])


def measure_gather(rows: int = 2_000_000, size: int = 8_192) -> dict[str, Any]:
    """Shuffled rows of Criteo's shape per CPU second, one thread, in the page cache."""
    import tempfile
    import time

    import numpy as np
    import torch
    from against import machine

    from fieldwise.data.batches import Batches
    from fieldwise.data.store import Split

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ids.npy"
        np.save(path, np.random.default_rng(0).integers(0, 1000, (rows, 39), dtype=np.int32))
        split = Split(np.load(path, mmap_mode="c"), np.zeros(rows, dtype=np.uint8))
        batches = Batches(split, torch.device("cpu"))
        began = time.process_time()
        read = sum(len(batch.labels) for _ in range(5) for batch in batches.shuffled(size))
        return {"machine": machine(), "rows_a_cpu_second": round(read / (time.process_time() - began))}


def main() -> None:
    """Parses the arguments, and prints the table or measures a rate."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gather", type=Path, help="measure, and write this file")
    given = parser.parse_args()
    if given.gather:
        given.gather.write_text(json.dumps(measure_gather(), indent=1) + "\n", encoding="utf-8")
    print(table())


if __name__ == "__main__":
    main()
