"""Small raw files of every format with seeded content, and the comparison of datasets made from them."""

import csv
import importlib.util
import json
import shutil
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from fieldwise.data.avazu import COLUMNS
from fieldwise.data.engines.engine import Engine
from fieldwise.data.frame import Frame
from fieldwise.data.prepare import prepare
from fieldwise.data.rules import Rule
from fieldwise.data.source import Source
from fieldwise.data.split import SplitRule
from fieldwise.data.store import Dataset

spark = pytest.mark.skipif(
    importlib.util.find_spec("pyspark") is None or shutil.which("java") is None,
    reason="Spark needs `pip install fieldwise[spark]` and Java 17",
)
quiet = pytest.mark.filterwarnings(  # pyspark leaves its sockets to the garbage collector
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)

AWKWARD = [
    'say "hi"', "tab\there", "", None, "Ärger", "ärger", "日本", "😀", "z", "Z", "x" * 300, "007", "7", "7.0", "1e3",
    "-0", " lead", "trail ", "a,b", "line\nbreak", "NULL", "NaN", "\\N", "'", "a|b", "\u00e9", "e\u0301", "%", "\\",
]  # fmt: skip


def criteo(path: Path, rows: int = 3_000) -> Path:
    """Writes tab-separated text without a header: nulls, negative integers and integers on every bin edge."""
    draw = np.random.default_rng(0)
    lines = []
    for row in range(rows):
        integers = ["" if draw.random() < 0.1 else str(int(draw.integers(-3, 4_000))) for _ in range(12)]
        texts = ["" if draw.random() < 0.05 else f"{int(draw.integers(0, 40)):08x}" for _ in range(26)]
        lines.append("\t".join([str(row % 3 % 2), str(row), *integers, *texts]))  # I1 contains every integer once
    path.write_text("\n".join(lines) + "\n")
    return path


def avazu(path: Path, rows: int = 2_000) -> Path:
    """Writes CSV with Avazu's header; a third of the ids are empty."""
    draw = np.random.default_rng(1)
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for row in range(rows):
            hour = f"1410{21 + row % 7:02d}{row % 24:02d}"
            rest = [f"{int(draw.integers(0, 9)):x}" for _ in range(len(COLUMNS) - 3)]
            writer.writerow(["" if row % 3 == 0 else row, int(draw.random() < 0.2), hour, *rest])
    return path


def awkward_rows(rows: int = 2_000) -> list[dict[str, str | None]]:
    """Rows with text that is hard to parse, numbers, several genres, a time and a split column."""
    draw = np.random.default_rng(2)
    return [
        {
            "text": AWKWARD[int(draw.integers(0, len(AWKWARD)))],
            "größe, cm": None if draw.random() < 0.1 else str(round(float(draw.exponential(50)), 2)),
            "count": str(int(draw.integers(0, 5_000))),
            "few": str(int(draw.integers(0, 5))),
            "genres": "|".join(sorted({"ab", "cd", "éf", "gh"} - {("ab", "cd", "éf", "gh")[i % 4]})[: i % 4]) or None,
            "day": str(90 + i // 100),
            "part": ("train", "valid", "train", "test", "train")[i % 5],
            "click": str(int(draw.random() < 0.4)),
        }
        for i in range(rows)
    ]


def awkward(path: Path, rows: int = 2_000) -> Path:
    """Writes the awkward rows as CSV: null is an empty cell, empty text a pair of quotes."""
    found = awkward_rows(rows)

    def cell(value: str | None) -> str:
        return "" if value is None else '"' + value.replace('"', '""') + '"'

    lines = [",".join(cell(name) for name in found[0])]
    lines += [",".join(cell(value) for value in row.values()) for row in found]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


PUBLISHED_KINDS = {
    "column_1": "unique", "user": "category", "price": "number", "at": "time", "tags": "list", "zip": "category",
    "City": "category", "city": "category", "key": "unique", "one": "constant",
}  # fmt: skip


def published(folder: Path, rows: int = 6_000) -> Path:
    """Writes pandas' index, users of a few rows, decimal commas, times, lists, zip codes, markers of null; zipped."""
    draw = np.random.default_rng(6)
    users, places = draw.integers(0, rows // 2, rows), draw.integers(1_000, 1_010, rows)
    lines = [";user;price;at;tags;zip;City;city;key;one;rating"]
    for i in range(rows):
        tags = str([f"t{tag}" for tag in draw.integers(0, 5, i % 4)])
        price = "?" if i % 19 == 0 else f"{draw.exponential(9):.2f}".replace(".", ",")
        cells = [i, f"u{users[i]}", price, f"{1 + i % 28}.4.2024 {i % 24}:30", tags, f"0{places[i]}"]
        cells += [("Bern", "Zürich", "NA")[i % 3], ("a", "b", "-")[i // 7 % 3], f"{hash_of(i):016x}", "x"]
        lines.append(";".join(map(str, [*cells, 5 if draw.random() < 0.1 + 0.08 * (places[i] % 10) else 2])))
    with zipfile.ZipFile(folder / "published.zip", "w") as archive:
        archive.writestr("published.csv", "\n".join([*lines, ""]).encode("latin-1"))
    return folder / "published.zip"


def hash_of(number: int) -> int:
    """Returns 64 bits that look random."""
    return (number + 1) * 0x9E3779B97F4A7C15 % 2**64


def rules() -> dict[str, Rule]:
    """Rules for the awkward rows: several values, and two kinds of bins."""
    return {
        "genres": Rule(separator="|", min_count=1),
        "edge": Rule(column="count", kind="log-squared"),
        "wide": Rule(column="größe, cm", kind="width", width=2.5),
    }


def clicks(count: int = 6_000, seed: int = 0) -> pa.Table:
    """An informative item, and a session of one to four rows that says nothing about the label."""
    draw = np.random.default_rng(seed)
    item, session = draw.integers(0, 10, count), draw.integers(0, count // 2, count)
    tags = [[f"t{s % 7}", f"rare{s}"] for s in session]
    click = (draw.random(count) < 0.1 + 0.08 * item).astype(int)
    columns = {"session": pa.array([f"s{s}" for s in session]), "item": pa.array([f"i{i}" for i in item])}
    return pa.table({**columns, "tags": pa.array(tags), "click": click})


def frame(rows: pa.Table, **more: Any) -> Frame:
    """The rows as a source, all fields categories."""
    kinds = {name: Rule(kind="category") for name in ("session", "item", "tags")}
    return Frame(frame=rows, label="click", **{"fields": kinds, **more})


def contents(folder: Path) -> dict[str, bytes]:
    """What a dataset folder holds: its files, and the arrays of all shards together; without its layout."""
    data = Dataset.open(folder)
    found = {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.suffix in (".json", ".parquet")}
    info = {
        key: value for key, value in json.loads(found.pop("dataset.json")).items() if key not in ("format", "shards")
    }
    for name, split in {"train": data.train, "valid": data.valid, "test": data.test}.items():
        found |= {f"{name}.ids": split.ids[:].tobytes(), f"{name}.labels": split.labels.tobytes()}
    return {**found, "info": json.dumps(info).encode()}


def assert_same_dataset(source: Source, folder: Path, engines: list[Engine], split: SplitRule | None = None) -> None:
    """Prepares a source with every engine and compares all they hold byte by byte."""
    made = [prepare(source, folder / f"out-{i}", split, engine=engine) for i, engine in enumerate(engines)]
    assert len({data.fingerprint for data in made}) == 1
    first = contents(made[0].folder)
    for data in made[1:]:
        assert contents(data.folder) == first
