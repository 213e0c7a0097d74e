"""Rows in memory as an Arrow table; what pandas calls an index is no column of theirs."""

import re
from typing import Any, Final

import pyarrow as pa

_UNNAMED: Final = re.compile(r"__index_level_\d+__")
"""What pandas calls an index without a name when it gives it away as a column."""


def table_of(rows: Any) -> pa.Table:
    """A dict of columns, or anything with an Arrow stream, less the index of a dataframe, whatever its name."""
    table = pa.table(rows)
    return table.drop_columns(_index(table.schema)) if hasattr(rows, "iloc") else table


def unnamed_index(schema: pa.Schema) -> list[str]:
    """The columns of an Arrow table or a Parquet file that were an index without a name in pandas."""
    return [name for name in _index(schema) if _UNNAMED.fullmatch(name)]


def _index(schema: pa.Schema) -> list[str]:
    """The columns that pandas says it made of an index; one that only counts rows is none."""
    found = (schema.pandas_metadata or {}).get("index_columns", [])
    return [name for name in found if isinstance(name, str) and name in schema.names]
