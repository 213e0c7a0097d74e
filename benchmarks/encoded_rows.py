"""Generates encoded rows of a known shape: ids with real skew, and labels that depend on them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

_CRITEO: Final = (
    *(64,) * 13,
    1_460, 583, 5_000_000, 2_200_000, 305, 24, 12_517, 633, 16, 93_145, 5_683, 4_000_000, 3_194,
    27, 14_992, 3_000_000, 16, 5_652, 2_173, 16, 3_500_000, 18, 16, 286_181, 105, 142_572,
)  # fmt: skip
_CAP: Final = 122_656
"""Maximum cardinality; it limits Criteo's seven largest vocabularies, so that all tables together have 1.0M rows."""


@dataclass(frozen=True)
class Shape:
    """Fields and rows. Every field has at least 16 ids, so that every library stores 16 columns of it."""

    name: str
    cardinalities: tuple[int, ...]
    clicks: float
    rows: int
    """Rows per epoch; 0 if steps are timed instead of epochs."""


SHAPES: Final = {
    "criteo": Shape("criteo", tuple(min(c, _CAP) for c in _CRITEO), 0.256, 0),
    "movielens": Shape("movielens", (6_041, 3_634, 16, 16, 22, 3_440, 302), 0.575, 590_856),
}


def write(shape: Shape, rows: int, folder: Path) -> dict[str, Any]:
    """Writes ids.npy (rows, fields) and labels.npy (rows,), deterministically, and returns statistics of them."""
    draw = np.random.default_rng(2021)
    fields = len(shape.cardinalities)
    ids = np.empty((rows, fields), np.int32)
    logits = np.full(rows, np.log(shape.clicks / (1 - shape.clicks)))
    for j, cardinality in enumerate(shape.cardinalities):
        # log-uniform ranks: the frequency of an id is inversely proportional to its rank
        ids[:, j] = np.floor(cardinality ** draw.random(rows)).astype(np.int32) - 1
        effects = draw.normal(0, 1.5 / fields**0.5, cardinality)
        logits += (effects - effects[ids[:, j]].mean())[ids[:, j]]
    labels = (draw.random(rows) < 1 / (1 + np.exp(-logits))).astype(np.uint8)
    np.save(folder / "ids.npy", ids)
    np.save(folder / "labels.npy", labels)
    first = ids[:2048]
    touched = sum(len(np.unique(first[:, j])) for j in range(fields))
    return {"rows": rows, "clicks": round(float(labels.mean()), 3), "touched_by_2048_rows": touched}
