"""Synthetic clicks whose right answer is known: which fields matter, and how wide each must be.

A click's logit is a sum of products, each of a hidden number of one field's value with a hidden number of another's.
A field's true width is the count of products it takes part in; noise fields take part in none.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import Field

from fieldwise.data.source import Source, SourceRows

CARDINALITIES: Final = {"user": 400, "item": 240, "city": 60, "noise_a": 400, "noise_b": 60, "noise_c": 12}
PRODUCTS: Final = (("user", "item"),) * 5 + (("user", "city"),) * 2
WIDTHS: Final = {name: sum(name in pair for pair in PRODUCTS) for name in CARDINALITIES}
"""The true widths: user 7, item 5, city 2, noise 0."""
_CHUNK: Final = 250_000


class Planted(Source):
    """Planted clicks; the first rows are the same for every size, the same seed gives the same rows."""

    rows: int = Field(200_000, ge=1_000, le=1_000_000_000)
    """How many rows."""
    seed: int = Field(0, ge=0, lt=2**63)
    """Draws the hidden numbers and the rows."""
    signal: float = Field(2.0, gt=0)
    """Standard deviation of the logit: how far clicks can be told at all."""

    def open(self) -> SourceRows:
        """The planted rows, drawn chunk by chunk."""
        fields = tuple(CARDINALITIES)

        def batches() -> Iterator[pa.RecordBatch]:
            hidden = self._hidden()
            for start in range(0, self.rows, _CHUNK):
                yield self._chunk(start, min(_CHUNK, self.rows - start), hidden)

        return SourceRows(fields, "click", ("row",), batches, self.rows)

    def _hidden(self) -> list[tuple[NDArray[np.float64], NDArray[np.float64]]]:
        """For each product the hidden numbers of the two fields' values."""
        draw = np.random.default_rng([self.seed, 0])
        return [(draw.standard_normal(CARDINALITIES[a]), draw.standard_normal(CARDINALITIES[b])) for a, b in PRODUCTS]

    def _chunk(
        self, start: int, count: int, hidden: list[tuple[NDArray[np.float64], NDArray[np.float64]]]
    ) -> pa.RecordBatch:
        draw = np.random.default_rng([self.seed, 1, start])
        # drawn for a whole chunk, so that a shorter dataset is the beginning of a longer one
        values = {name: draw.integers(0, c, _CHUNK)[:count] for name, c in CARDINALITIES.items()}
        logit = np.zeros(count)
        for (a, b), (left, right) in zip(PRODUCTS, hidden, strict=True):
            logit += left[values[a]] * right[values[b]]
        chance = 1 / (1 + np.exp(-logit * self.signal / np.sqrt(len(PRODUCTS))))
        click = (draw.random(_CHUNK)[:count] < chance).astype(np.uint8)
        columns = {name: pa.array(v) for name, v in values.items()}
        return pa.record_batch({**columns, "click": click, "row": np.arange(start, start + count)})
