"""Rows in memory: pandas, polars, Arrow, a DuckDB relation, a dict of columns, or a list of dicts."""

import hashlib
from collections.abc import Iterator
from typing import Any, Literal

import pyarrow as pa
from pydantic import ConfigDict, Field, SkipValidation

from fieldwise.core.automatic import AUTO
from fieldwise.core.settings import Values
from fieldwise.data.cells import NULLS, Cells
from fieldwise.data.dataframes import to_arrow
from fieldwise.data.source import MinCount, Source, SourceRows
from fieldwise.data.table import choose, cleaned, index_columns, inferred_fields
from fieldwise.data.text_layout import SAMPLE
from fieldwise.data.threshold import label_of


class Frame(Source):
    """A dataframe without its index, a dict of columns, a list of dicts, or any object with an Arrow stream.

    Rows are numbered in order.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    frame: SkipValidation[Any] = Field(exclude=True, repr=False)
    """The rows."""
    label: str
    """Name of the label column, or a comparison such as 'rating >= 4'."""
    min_count: MinCount = AUTO
    """Values with fewer training rows than this map to `unknown`; at least 1. auto: 1, 2, 5, 10 or 20 for categories,
    whichever is clearly best for a logistic regression on the validation rows."""
    positive: tuple[str, ...] = ()
    """Label values that count as a click, as text; if empty, the label must be 0 or 1."""
    only: tuple[str, ...] = ()
    """Columns that become fields, in order; if empty, all columns except the label."""
    ignore: tuple[str, ...] = ()
    """Columns that are not fields."""
    nulls: tuple[str, ...] = NULLS
    """Texts that mean null."""
    decimal: Literal[".", ","] = "."
    """Decimal sign of numbers in text."""

    def model_post_init(self, context: Any) -> None:
        """Reads the rows now, since a stream can be read only once."""
        if not isinstance(self.frame, pa.Table):
            object.__setattr__(self, "frame", to_arrow(self.frame))

    def open(self) -> SourceRows:
        """Returns all rows, with fields given or inferred as for a file."""
        table: pa.Table = self.frame
        cells = Cells(nulls=self.nulls, decimal=self.decimal)
        label, threshold = label_of(self.label, table.column_names)
        first = cleaned(table.slice(0, SAMPLE), cells)
        fields = choose(first, label, self.only, self.ignore, self.fields)

        def batches() -> Iterator[pa.RecordBatch]:
            return iter(table.to_batches(max_chunksize=262_144))

        return SourceRows(
            fields,
            label,
            (),
            batches,
            table.num_rows,
            positive=self.positive,
            in_process=False,
            cells=cells,
            threshold=threshold,
            inferred=inferred_fields(fields, self.fields),
            index=index_columns(first),
        )

    def origin(self) -> Values:
        """Returns the settings and a digest of the rows."""
        digest = hashlib.sha256()
        for batch in self.frame.to_batches():
            digest.update(batch.serialize())
        return {**self.values(), "rows": digest.hexdigest()[:16]}
