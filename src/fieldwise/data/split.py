"""Which split a row belongs to: by a portable hash, by time, by a column, or by the file it lies in."""

import math
from hashlib import md5
from pathlib import Path
from typing import Annotated, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pydantic import AfterValidator, Field

from fieldwise.core.errors import DataError
from fieldwise.core.settings import Settings
from fieldwise.data.files import find, sizes

SPLIT_RULES: Final = {
    "random": "fieldwise.data.split:RandomSplit",
    "time": "fieldwise.data.split:TimeSplit",
    "column": "fieldwise.data.split:ColumnSplit",
    "files": "fieldwise.data.split:FileSplit",
}
SPLITS: Final = ("train", "valid", "test")


def _sum_to_one(shares: tuple[float, float, float]) -> tuple[float, float, float]:
    if min(shares) <= 0 or abs(sum(shares) - 1) > 1e-9:
        raise ValueError("shares of train, valid and test must be above 0 and add up to 1")
    return shares


Shares = Annotated[tuple[float, float, float], AfterValidator(_sum_to_one)]


class SplitRule(Settings):
    """Base of every way to split."""

    def origin(self) -> dict[str, Any]:
        """What identifies the split, wherever its files lie: the settings, and sizes of files."""
        return self.values()


class RandomSplit(SplitRule):
    """A seeded random split: md5 of the seed and the row's key, compared with the shares."""

    seed: int = Field(0, ge=0, lt=2**63)
    """Another seed draws other rows; it is not the seed of the training."""
    shares: Shares = (0.8, 0.1, 0.1)
    """Of train, valid and test; they add up to 1."""
    key: tuple[str, ...] = ()
    """Columns whose rows stay together, such as a user; without them the source's own, or the number of the row."""

    def assign(self, batch: pa.RecordBatch, key: tuple[str, ...]) -> NDArray[np.uint8]:
        """0, 1 or 2 for each row: its place in SPLITS, (rows,)."""
        if not key:
            raise DataError("The engine 'arrow' cannot split rows that have no key at random. Use the engine 'duckdb'.")
        parts = [pc.fill_null(pc.cast(batch.column(name), pa.string()), "") for name in key]
        texts = pc.binary_join_element_wise(*parts, "|").to_pylist()
        prefix = f"{self.seed}|".encode()
        heads = b"".join([md5(prefix + text.encode(), usedforsecurity=False).digest()[:4] for text in texts])
        drawn = np.frombuffer(heads, dtype=">u4") / 2**32
        edges = np.cumsum(self.shares[:2])
        return np.searchsorted(edges, drawn, side="right").astype(np.uint8)

    def edges(self) -> tuple[str, str]:
        """Where valid and test begin, as the first digits of an md5; they sort as text like the numbers in `assign`."""
        first, second = np.cumsum(self.shares[:2])
        return f"{math.ceil(first * 2**32):08x}", f"{math.ceil(second * 2**32):08x}"


class TimeSplit(SplitRule):
    """The earliest rows train, the latest test; rows of one time stay together."""

    column: str
    """When a row happened: a number, a time, or text that sorts like time."""
    shares: Shares = (0.8, 0.1, 0.1)
    """Of train, valid and test; they add up to 1."""


class ColumnSplit(SplitRule):
    """A column says which split a row belongs to."""

    column: str
    """Its values are the three names below."""
    train: str = "train"
    """The value of training rows."""
    valid: str = "valid"
    """The value of validation rows."""
    test: str = "test"
    """The value of test rows."""


class FileSplit(SplitRule):
    """Each split has files of its own; the source's are those of the training rows."""

    valid: Path
    """A file, a folder or a glob."""
    test: Path
    """A file, a folder or a glob."""

    def origin(self) -> dict[str, Any]:
        """The sizes of the files."""
        return {"valid": sizes(find(self.valid)), "test": sizes(find(self.test))}
