"""Rules that assign rows to splits: by a portable hash, by time, by a column, or by file."""

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
from fieldwise.data.time_forms import check_time_format

SPLIT_RULES: Final = {
    "random": "fieldwise.data.split:RandomSplit",
    "time": "fieldwise.data.split:TimeSplit",
    "column": "fieldwise.data.split:ColumnSplit",
    "files": "fieldwise.data.split:FileSplit",
}
SPLITS: Final = ("train", "valid", "test")


def _sum_to_one(shares: tuple[float, float, float]) -> tuple[float, float, float]:
    if min(shares) <= 0 or abs(sum(shares) - 1) > 1e-9:
        raise ValueError("shares of train, valid and test must be above 0 and sum to 1")
    return shares


Shares = Annotated[tuple[float, float, float], AfterValidator(_sum_to_one)]


class SplitRule(Settings):
    """Base class of the split rules."""

    def origin(self) -> dict[str, Any]:
        """Returns what identifies the split at any location: settings and file sizes."""
        return self.values()


class RandomSplit(SplitRule):
    """A seeded random split: compares md5 of the seed and the row's key with the shares."""

    seed: int = Field(0, ge=0, lt=2**63)
    """Seed of the split, independent of the training seed; at least 0."""
    shares: Shares = (0.8, 0.1, 0.1)
    """Fractions of train, valid and test; each above 0, sum 1."""
    key: tuple[str, ...] = ()
    """Columns whose equal rows stay in one split, such as a user; by default the source's key or the row number."""

    def assign(self, batch: pa.RecordBatch, key: tuple[str, ...]) -> NDArray[np.uint8]:
        """Returns the index in SPLITS of each row, (rows,)."""
        if not key:
            raise DataError(
                "The engine 'arrow' cannot split rows: they have no key. Allowed: a key. Use the engine 'duckdb'."
            )
        parts = [pc.fill_null(pc.cast(batch.column(name), pa.string()), "") for name in key]
        texts = pc.binary_join_element_wise(*parts, "|").to_pylist()
        prefix = f"{self.seed}|".encode()
        heads = b"".join([md5(prefix + text.encode(), usedforsecurity=False).digest()[:4] for text in texts])
        drawn = np.frombuffer(heads, dtype=">u4") / 2**32
        edges = np.cumsum(self.shares[:2])
        return np.searchsorted(edges, drawn, side="right").astype(np.uint8)

    def edges(self) -> tuple[str, str]:
        """Returns the lower bounds of valid and test as md5 prefixes, which sort as text like `assign`'s numbers."""
        first, second = np.cumsum(self.shares[:2])
        return f"{math.ceil(first * 2**32):08x}", f"{math.ceil(second * 2**32):08x}"


class TimeSplit(SplitRule):
    """The earliest rows are train, the latest test; rows with equal time stay together."""

    column: str
    """Column with the time of a row: a number, a time, or text that is one of both."""
    time_format: Annotated[str, AfterValidator(check_time_format)] | None = None
    """Form of times in text, as for a field; found from all rows if not given."""
    shares: Shares = (0.8, 0.1, 0.1)
    """Fractions of train, valid and test; each above 0, sum 1."""


class ColumnSplit(SplitRule):
    """A column contains the split of each row."""

    column: str
    """Column that contains the three values below."""
    train: str = "train"
    """Value of training rows."""
    valid: str = "valid"
    """Value of validation rows."""
    test: str = "test"
    """Value of test rows."""
    valid_share: float | None = Field(None, gt=0, lt=1)
    """Fraction of the training rows that become valid, at random, if the column has no value for valid; 0 to 1."""
    seed: int = Field(0, ge=0, lt=2**63)
    """Seed of the rows that become valid; at least 0."""


class FileSplit(SplitRule):
    """Each split has separate files; the source's files are the training rows."""

    valid: Path | tuple[Path, ...] | None = None
    """Validation rows: path of a file, a folder or a glob, or a list of them; by default some of the training rows."""
    test: Path | tuple[Path, ...]
    """Test rows: path of a file, a folder or a glob, or a list of them."""
    valid_share: float = Field(0.1, gt=0, lt=1)
    """Fraction of the training rows that become valid, at random, if `valid` is not given; 0 to 1."""
    seed: int = Field(0, ge=0, lt=2**63)
    """Seed of the rows that become valid; at least 0."""

    def origin(self) -> dict[str, Any]:
        """Returns the file sizes of valid and test, or how valid is taken from the training rows."""
        test = {"test": sizes(find(self.test))}
        if self.valid is None:
            return {"valid_share": self.valid_share, "seed": self.seed, **test}
        return {"valid": sizes(find(self.valid)), **test}
