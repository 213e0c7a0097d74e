"""Converts rows in memory to Arrow tables, without the index columns of pandas."""

import re
from typing import Any, Final

import pyarrow as pa

_UNNAMED: Final = re.compile(r"__index_level_\d+__")
"""Column name that pandas gives an index without a name."""


def to_arrow(rows: Any) -> pa.Table:
    """Converts a dict of columns, or any object with an Arrow stream; drops the index of a dataframe."""
    table = pa.table(rows)
    return table.drop_columns(_index(table.schema)) if hasattr(rows, "iloc") else table


def unnamed_index_columns(schema: pa.Schema) -> list[str]:
    """Returns the columns of an Arrow or Parquet schema that were an unnamed index in pandas."""
    return [name for name in _index(schema) if _UNNAMED.fullmatch(name)]


def _index(schema: pa.Schema) -> list[str]:
    """Returns the columns that pandas created from an index; a RangeIndex has none."""
    found = (schema.pandas_metadata or {}).get("index_columns", [])
    return [name for name in found if isinstance(name, str) and name in schema.names]
