"""Synthetic clicks with a known answer: which fields matter, and the width each one needs.

The logit of a click is a sum of products. Each product multiplies latent factors of two fields' values.
The true width of a field is the number of products it is part of; noise fields are part of none.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import Field

from fieldwise.data.source import Source, SourceRows, SourceTiers

CARDINALITIES: Final = {"user": 400, "item": 240, "city": 60, "noise_a": 400, "noise_b": 60, "noise_c": 12}
PRODUCTS: Final = (("user", "item"),) * 5 + (("user", "city"),) * 2
WIDTHS: Final = {name: sum(name in pair for pair in PRODUCTS) for name in CARDINALITIES}
"""True widths: user 7, item 5, city 2, noise 0."""
_CHUNK: Final = 250_000


class Planted(Source):
    """Planted clicks; the same seed gives the same rows, and a larger dataset begins with the smaller one."""

    rows: int = Field(200_000, ge=1_000, le=1_000_000_000)
    """Number of rows; 1,000 to 1,000,000,000."""
    seed: int = Field(0, ge=0, lt=2**63)
    """Seed of the latent factors and the rows; at least 0."""
    tiers: SourceTiers = 0.0
    """As in other sources, but off: all values of a planted field are equally frequent."""
    signal: float = Field(2.0, gt=0)
    """Standard deviation of the logit; larger values make clicks easier to predict. Above 0."""

    def open(self) -> SourceRows:
        """Returns the planted rows, drawn chunk by chunk."""
        fields = tuple(CARDINALITIES)

        def batches() -> Iterator[pa.RecordBatch]:
            factors = self._factors()
            for start in range(0, self.rows, _CHUNK):
                yield self._chunk(start, min(_CHUNK, self.rows - start), factors)

        return SourceRows(fields, "click", ("row",), batches, self.rows)

    def _factors(self) -> list[tuple[NDArray[np.float64], NDArray[np.float64]]]:
        """Returns the latent factors of both fields for each product."""
        draw = np.random.default_rng([self.seed, 0])
        return [(draw.standard_normal(CARDINALITIES[a]), draw.standard_normal(CARDINALITIES[b])) for a, b in PRODUCTS]

    def _chunk(
        self, start: int, count: int, factors: list[tuple[NDArray[np.float64], NDArray[np.float64]]]
    ) -> pa.RecordBatch:
        draw = np.random.default_rng([self.seed, 1, start])
        # always draw a full chunk, so that a longer dataset begins with a shorter one
        values = {name: draw.integers(0, c, _CHUNK)[:count] for name, c in CARDINALITIES.items()}
        logit = np.zeros(count)
        for (a, b), (left, right) in zip(PRODUCTS, factors, strict=True):
            logit += left[values[a]] * right[values[b]]
        probability = 1 / (1 + np.exp(-logit * self.signal / np.sqrt(len(PRODUCTS))))
        click = (draw.random(_CHUNK)[:count] < probability).astype(np.uint8)
        columns = {name: pa.array(v) for name, v in values.items()}
        return pa.record_batch({**columns, "click": click, "row": np.arange(start, start + count)})
