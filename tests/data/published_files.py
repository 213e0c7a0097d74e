"""One table in many files, as they are published."""

import bz2
import csv
import gzip
import io
import json
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from fieldwise.data.rules import Rule
from fieldwise.data.table import Table

ROWS = 240
NAMES = ("price", "city", "visits", "click")
CITIES = ["Bern", "Zürich", "a, b", "Genève", None]
RULES = {"price": Rule(kind="quantile", bins=8), "visits": Rule(kind="log-squared"), "city": Rule(kind="category")}
Rows = Sequence[tuple[str | None, ...]]


def cells() -> Rows:
    """Rows with numbers, text with a comma and letters beyond ASCII, and nulls."""
    draw = np.random.default_rng(0)
    return [
        (
            None if i % 17 == 0 else f"{draw.exponential(20):.2f}",
            CITIES[int(draw.integers(0, 5))],
            str(int(draw.integers(0, 900))),
            str(i % 2),
        )
        for i in range(ROWS)
    ]


def text(rows: Rows, null: str = "", delimiter: str = ",", header: tuple[str, ...] = NAMES) -> str:
    """Delimited text, quoted where needed."""
    out = io.StringIO()
    writer = csv.writer(out, delimiter=delimiter, lineterminator="\n")
    writer.writerows([header] if header else [])
    writer.writerows([null if cell is None else cell for cell in row] for row in rows)
    return out.getvalue()


def plain(folder: Path) -> Path:
    (folder / "plain.csv").write_text(text(cells()), encoding="utf-8")
    return folder / "plain.csv"


def written(path: Path, content: bytes | str) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def zipped(folder: Path) -> Path:
    with zipfile.ZipFile(folder / "clicks.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("data/clicks.csv", text(cells()))
        archive.writestr("__MACOSX/data/._clicks.csv", b"\0")
    return folder / "clicks.zip"


def zstd(folder: Path) -> Path:
    with pa.output_stream(folder / "clicks.csv.zst", compression="zstd") as file:
        file.write(text(cells()).encode())
    return folder / "clicks.csv.zst"


def comma_space(folder: Path) -> Path:
    lines = [", ".join(NAMES)]
    for row in cells():
        lines.append(", ".join("" if cell is None else f'"{cell}"' if "," in cell else cell for cell in row))
    return written(folder / "spaced.csv", "\n".join([*lines, ""]))


def json_lines(folder: Path) -> Path:
    kinds: list[Callable[[str], Any]] = [float, str, int, int]
    lines = []
    for i, row in enumerate(cells()):  # a null is written, or its key is left out
        found = {n: None if c is None else kind(c) for n, kind, c in zip(NAMES, kinds, row, strict=True)}
        lines.append(json.dumps({n: value for n, value in found.items() if value is not None or i % 2 == 0}))
    return written(folder / "clicks.jsonl", "\n".join([*lines, ""]))


def several(folder: Path) -> list[Path]:
    rows = cells()
    return [
        written(folder / "z.csv", text(rows[:100])),
        written(folder / "b.csv.gz", gzip.compress(text(rows[100:]).encode())),
    ]


def rated(folder: Path) -> Path:
    rows = [(*row[:3], "4.5" if row[3] == "1" else "3") for row in cells()]
    return written(folder / "rated.csv", text(rows, header=(*NAMES[:3], "rating")))


def decimal_comma(folder: Path) -> Path:
    rows = [(row[0] and row[0].replace(".", ","), *row[1:]) for row in cells()]
    return written(folder / "comma.csv", text(rows, delimiter=";"))


def with_index(folder: Path) -> Path:
    rows = [(str(i), *row) for i, row in enumerate(cells())]
    return written(folder / "index.csv", text(rows, header=("", *NAMES)))


def mixed_nulls(folder: Path) -> Path:
    markers = ["?", "NA", "null", "-", "NaN", "\\N", ""]
    rows = [tuple(markers[i % 7] if cell is None else cell for cell in row) for i, row in enumerate(cells())]
    return written(folder / "nulls.csv", text(rows))


def with_case(folder: Path) -> Path:
    rows = [(*row, row[0], row[1], row[2]) for row in cells()]
    return written(folder / "case.csv", text(rows, header=(*NAMES, "Price", "CITY", "price")))


FORMS: dict[str, tuple[Callable[[Path], Any], dict[str, Any], dict[str, Any]]] = {
    "no header": (
        lambda folder: written(folder / "bare.csv", text(cells(), header=())), {"header": NAMES}, {"header": NAMES},
    ),
    "pandas' index": (with_index, {}, {}),
    "names that differ by case, repeated names": (with_case, {"only": NAMES[:3]}, {}),
    "comma and space": (comma_space, {}, {}),
    "markers of null": (mixed_nulls, {}, {}),
    "decimal commas": (decimal_comma, {}, {}),
    "semicolons": (lambda folder: written(folder / "semi.csv", text(cells(), delimiter=";")), {}, {}),
    "latin-1": (
        lambda folder: written(folder / "latin.csv", text(cells()).encode("latin-1")),
        {"encoding": "latin-1"},
        {"encoding": "latin-1"},
    ),
    "zip": (zipped, {}, {}),
    "gz": (lambda folder: written(folder / "clicks.csv.gz", gzip.compress(text(cells()).encode())), {}, {}),
    "bz2": (lambda f: written(f / "clicks.tsv.bz2", bz2.compress(text(cells(), delimiter="\t").encode())), {}, {}),
    "zst": (zstd, {}, {}),
    "JSON Lines": (json_lines, {}, {}),
    "JSON Lines, bz2": (
        lambda folder: written(folder / "clicks.ndjson.bz2", bz2.compress(json_lines(folder).read_bytes())), {}, {},
    ),
    "several files": (several, {}, {}),
    "label as a threshold": (rated, {"label": "rating >= 4"}, {}),
}  # fmt: skip


def table(raw: Any, **settings: Any) -> Table:
    return Table(**{"raw": raw, "label": "click", "fields": RULES, **settings})
