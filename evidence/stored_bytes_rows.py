"""Rows of `benchmarks/stored_bytes.py`, and what fits the same bytes."""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import fmean
from typing import Any, Final

LEVELS: Final = (4, 8, 16, 32, 64)
"""Denominators of the full float32 bytes."""
OVER: Final = 1.01
"""Scales may exceed a level by this factor."""
TYPES: Final = {
    "float32": "float32", "float16": "float16", "int8": "int8", "int4 after": "int4, rounded after training",
    "int4": "int4",
}  # fmt: skip
"""Names of stored types in tables."""
Rows = list[dict[str, Any]]
Key = tuple[str, float, str]
"""Method, fraction of the numbers, stored type."""
Cells = Mapping[Key, Rows]
Models = Mapping[str, Cells]


def read(path: Path) -> Models:
    """Returns the rows of each model and cell, in the order of the models' names in the file."""
    found: dict[str, dict[Key, Rows]] = defaultdict(lambda: defaultdict(list))
    order = ("fm", "deepfm", "autoint", "dcnv2")
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    for row in sorted(rows, key=lambda row: (order.index(row["model"]), row["seed"])):
        found[row["model"]][row["method"], row["fraction"], row["store"]].append(row)
    return {model: dict(cells) for model, cells in found.items()}


def mean(rows: Rows, name: str) -> float:
    """Returns the mean of one value over seeds."""
    return fmean(row[name] for row in rows)


def full_bytes(cells: Cells) -> float:
    """Returns the bytes of the full model in float32, without dense layers."""
    return mean(cells["full", 1.0, "float32"], "bytes")


def fitting(cells: Cells, methods: Iterable[str], level: int) -> Cells:
    """Returns the cells of some methods that fit a level."""
    room, known = OVER * full_bytes(cells) / level, set(methods)
    return {
        key: rows
        for key, rows in cells.items()
        if key[0] in known and key[2] != "int4 after" and mean(rows, "bytes") <= room
    }


def best(cells: Cells) -> tuple[Key, Rows]:
    """Returns the cell with the best mean AUC on validation rows."""
    return max(cells.items(), key=lambda item: mean(item[1], "valid"))


def count(found: Models) -> str:
    """Returns how many seeds the models have."""
    seeds = {len(cells["full", 1.0, "float32"]) for cells in found.values()}
    return str(*seeds) if len(seeds) == 1 else f"{min(seeds)} to {max(seeds)}"


def differences(one: Rows, other: Rows) -> list[float]:
    """Returns the test AUC of the other minus that of the one, per common seed."""
    by_seed = {row["seed"]: row["auc"] for row in other}
    return [by_seed[row["seed"]] - row["auc"] for row in one if row["seed"] in by_seed]
