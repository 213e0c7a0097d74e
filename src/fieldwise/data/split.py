"""Which split a row belongs to: a portable hash of its key, so that every engine and run agrees."""

from hashlib import md5
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pydantic import Field, field_validator

from fieldwise.core.settings import Settings

SPLITS: Final = ("train", "valid", "test")


class RandomSplit(Settings):
    """A seeded random split: md5 of the seed and the row's key, compared with the shares."""

    seed: int = Field(0, ge=0)
    """Another seed draws other rows; it is not the seed of the training."""
    shares: tuple[float, float, float] = (0.8, 0.1, 0.1)
    """Of train, valid and test; they add up to 1."""

    @field_validator("shares")
    @classmethod
    def _sum_to_one(cls, shares: tuple[float, float, float]) -> tuple[float, float, float]:
        if min(shares) <= 0 or abs(sum(shares) - 1) > 1e-9:
            raise ValueError("shares of train, valid and test must be above 0 and add up to 1")
        return shares

    def assign(self, batch: pa.RecordBatch, key: tuple[str, ...]) -> NDArray[np.uint8]:
        """0, 1 or 2 for each row: its place in SPLITS, (rows,)."""
        parts = [pc.cast(batch.column(name), pa.string()) for name in key]
        texts = pc.binary_join_element_wise(*parts, "|").to_pylist()
        prefix = f"{self.seed}|".encode()
        heads = b"".join([md5(prefix + text.encode(), usedforsecurity=False).digest()[:4] for text in texts])
        drawn = np.frombuffer(heads, dtype=">u4") / 2**32
        edges = np.cumsum(self.shares[:2])
        return np.searchsorted(edges, drawn, side="right").astype(np.uint8)
