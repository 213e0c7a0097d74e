"""Rows that are already in memory: pandas, polars, Arrow, a DuckDB relation, anything with an Arrow stream."""

import hashlib
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pydantic import ConfigDict, Field, SkipValidation

from fieldwise.core.errors import DataError
from fieldwise.core.settings import Values
from fieldwise.data.in_memory import table_of
from fieldwise.data.source import Source, SourceRows
from fieldwise.data.table import choose


class Frame(Source):
    """A dataframe, less its index, or whatever else gives an Arrow stream; its rows are numbered in order."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    frame: SkipValidation[Any] = Field(exclude=True, repr=False)
    """The rows."""
    label: str
    """The column that says whether a row was clicked."""
    positive: tuple[str, ...] = ()
    """The label's values that count as a click, as text; without them it must hold 0 and 1."""
    only: tuple[str, ...] = ()
    """The columns that become fields, in order; without them all but the label."""
    ignore: tuple[str, ...] = ()
    """Columns that become no field."""

    def model_post_init(self, context: Any) -> None:
        """Takes the rows once, since a stream may be read only once."""
        if not isinstance(self.frame, pa.Table):
            if not hasattr(self.frame, "__arrow_c_stream__"):
                raise DataError(
                    f"Rows of type {type(self.frame).__name__} give no Arrow stream. "
                    "Allowed: pandas, polars, Arrow, DuckDB. Convert them to one of these."
                )
            object.__setattr__(self, "frame", table_of(self.frame))

    def open(self) -> SourceRows:
        """All rows, with fields named or inferred as from a file."""
        table: pa.Table = self.frame
        fields, rules = choose(table.slice(0, 10_000), self.label, self.only, self.ignore, self.fields)

        def batches() -> Iterator[pa.RecordBatch]:
            return iter(table.to_batches(max_chunksize=262_144))

        return SourceRows(fields, self.label, (), batches, table.num_rows, rules, self.positive, in_process=False)

    def origin(self) -> Values:
        """The settings, and a digest of the rows."""
        digest = hashlib.sha256()
        for batch in self.frame.to_batches():
            digest.update(batch.serialize())
        return {**self.values(), "rows": digest.hexdigest()[:16]}
