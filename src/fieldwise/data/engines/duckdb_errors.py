"""Errors of DuckDB."""

from collections.abc import Iterable, Iterator

import pyarrow as pa


def streamed(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yields the batches; an error of DuckDB, which Arrow passes on as text, is one of DuckDB's again."""
    import duckdb

    try:
        yield from batches
    except OSError as error:
        kinds = {"Out of Memory": duckdb.OutOfMemoryException, "IO": duckdb.IOException}
        kind = kinds.get(str(error).partition(" Error:")[0], duckdb.Error)
        raise kind(str(error)) from error


def first_line(error: Exception) -> str:
    """Returns the first line of an error, without its last period."""
    return str(error).splitlines()[0].rstrip(".")
