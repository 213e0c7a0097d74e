"""A source of random clicks over any number of fields with any names; resolved by path, as a user's source."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from fieldwise.data.source import Source, SourceRows


class ManyFields(Source):
    """Clicks that depend on the first field."""

    names: tuple[str, ...]
    """Names of the fields."""

    def open(self) -> SourceRows:
        def batches() -> Iterator[pa.RecordBatch]:
            draw = np.random.default_rng(0)
            ids = draw.integers(0, 8, (1_500, len(self.names)))
            clicks = (draw.random(len(ids)) < 0.2 + 0.6 * (ids[:, 0] > 3)).astype(np.uint8)
            columns = {name: pa.array(ids[:, j]) for j, name in enumerate(self.names)}
            yield pa.record_batch({**columns, "the click": clicks, "the row": np.arange(len(ids))})

        return SourceRows(self.names, "the click", ("the row",), batches, 1_500)
