"""Generates rows shaped like Criteo's display ads: label, 13 integers with nulls, 26 hex strings, with real skew.

python benchmarks/criteo_like.py 1000000 criteo_like.txt
"""

import sys
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv

CARDINALITIES: Final = (
    1_460, 583, 5_000_000, 2_200_000, 305, 24, 12_517, 633, 3, 93_145, 5_683, 4_000_000, 3_194,
    27, 14_992, 3_000_000, 10, 5_652, 2_173, 4, 3_500_000, 18, 15, 286_181, 105, 142_572,
)  # fmt: skip
"""Of the 26 hex strings, as in the full dataset; the largest are halved."""
SCALES: Final = (4, 90, 30, 8, 18_000, 110, 16, 13, 105, 1, 3, 1, 8)
NULLS: Final = (0.45, 0.0, 0.21, 0.22, 0.03, 0.22, 0.04, 0.0005, 0.04, 0.45, 0.04, 0.77, 0.22)
_CHUNK: Final = 500_000


def criteo_rows(count: int, seed: int) -> pa.Table:
    """Returns `count` rows; the columns are the label, I1 to I13 and C1 to C26."""
    draw = np.random.default_rng([2021, seed])
    columns = {"label": pa.array((draw.random(count) < 0.256).astype(np.int8))}
    for j, (scale, nulls) in enumerate(zip(SCALES, NULLS, strict=True)):
        values = np.floor(scale * draw.standard_exponential(count) ** 2).astype(np.int64) - (j == 1)
        columns[f"I{j + 1}"] = pa.array(values, mask=draw.random(count) < nulls)
    for j, cardinality in enumerate(CARDINALITIES):
        # log-uniform ranks: the frequency of a value is inversely proportional to its rank
        ranks = np.floor(cardinality ** draw.random(count)).astype(np.uint64) - 1
        mixed = (ranks + np.uint64(j + 1)) * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(32)
        columns[f"C{j + 1}"] = pa.array(_hex(mixed.astype(np.uint32)), mask=draw.random(count) < (0.03 if j % 4 else 0))
    return pa.table(columns)


def write(path: Path, rows: int) -> None:
    """Writes tab-separated text without a header, as Criteo publishes it."""
    options = csv.WriteOptions(include_header=False, delimiter="\t", quoting_style="none")
    with path.open("wb") as file:
        for seed, start in enumerate(range(0, rows, _CHUNK)):
            csv.write_csv(criteo_rows(min(_CHUNK, rows - start), seed), file, options)


def _hex(numbers: "np.ndarray[tuple[int], np.dtype[np.uint32]]") -> pa.Array:
    digits = np.frombuffer(b"0123456789abcdef", np.uint8)
    shifts = np.arange(28, -1, -4, dtype=np.uint32)
    text = digits[(numbers[:, None] >> shifts) & 15]  # (rows, 8)
    fixed = pa.Array.from_buffers(pa.binary(8), len(numbers), [None, pa.py_buffer(text.tobytes())])
    return pc.cast(pc.cast(fixed, pa.binary()), pa.string())


if __name__ == "__main__":
    write(Path(sys.argv[2]), int(sys.argv[1]))
