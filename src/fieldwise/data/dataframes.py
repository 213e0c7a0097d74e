"""Converts rows in memory to Arrow tables, without the index columns of pandas."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from fieldwise.core.errors import DataError
from fieldwise.data.names import column_names

_UNNAMED: Final = re.compile(r"__index_level_\d+__")
"""Column name that pandas gives an index without a name."""
_ALLOWED: Final = "Allowed: pandas, polars, Arrow, DuckDB, a dict of columns, or a list of dicts."


def to_arrow(rows: Any) -> pa.Table:
    """Converts a dict of columns, a list of dicts, or any object with an Arrow stream; drops a dataframe's index.

    A key that some dicts of a list lack is null in their rows.
    """
    if isinstance(rows, list | tuple):
        rows = _columns_of(rows)
    if isinstance(rows, Mapping):
        return pa.table({str(name): _column(str(name), values) for name, values in rows.items()})
    if not hasattr(rows, "__arrow_c_stream__"):
        raise DataError(f"Rows of type {type(rows).__name__} have no Arrow stream. {_ALLOWED} Convert them.")
    try:
        table = pa.table(rows)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise DataError(
            f"Rows of type {type(rows).__name__} cannot be read ({_first_line(error)}). {_ALLOWED} "
            "Give each column values of one type."
        ) from error
    table = table.drop_columns(_index(table.schema)) if hasattr(rows, "iloc") else table
    return table.rename_columns(column_names(table.column_names))


def is_scalar(value: Any) -> bool:
    """Returns whether a value is one value, not a column or a list of several."""
    return isinstance(value, str | bytes) or not hasattr(value, "__len__") or getattr(value, "ndim", 1) == 0


def unnamed_index_columns(schema: pa.Schema) -> list[str]:
    """Returns the columns of an Arrow or Parquet schema that were an unnamed index in pandas."""
    return [name for name in _index(schema) if _UNNAMED.fullmatch(name)]


def _columns_of(rows: Sequence[Any]) -> dict[str, list[Any]]:
    """Returns the columns of a list of dicts, in the order in which their keys appear."""
    strange = next((row for row in rows if not isinstance(row, Mapping)), None)
    if strange is not None:
        raise DataError(f"Rows hold a {type(strange).__name__}: {strange!r:.80}. {_ALLOWED} Give each row as a dict.")
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name) for row in rows] for name in names}


def _column(name: str, values: Any) -> pa.Array | pa.ChunkedArray:
    try:
        if isinstance(values, str | bytes):
            raise TypeError(f"it is one value, {values!r:.40}")
        return values if isinstance(values, pa.Array | pa.ChunkedArray) else pa.array(values)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise DataError(
            f"Column '{name}' cannot be read ({_first_line(error)}). Allowed: a list of values of one type. "
            "Give such a list, or give rows as a list of dicts."
        ) from error


def _first_line(error: Exception) -> str:
    return (" ".join(map(str, error.args)) or type(error).__name__).splitlines()[0]


def _index(schema: pa.Schema) -> list[str]:
    """Returns the columns that pandas created from an index; a RangeIndex has none."""
    found = (schema.pandas_metadata or {}).get("index_columns", [])
    return [name for name in found if isinstance(name, str) and name in schema.names]
