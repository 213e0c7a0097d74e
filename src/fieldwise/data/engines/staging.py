"""Parquet files between a source, an engine and this process."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fieldwise.core.errors import DataError
from fieldwise.data.files import parquet_sample
from fieldwise.data.source import Files, SourceRows

BATCH: Final = 131_072
"""Maximum rows per batch."""
BATCH_BYTES: Final = 32 << 20
"""Approximate maximum bytes per batch of wide rows; encoding takes a small multiple of it."""


def spool(rows: SourceRows, folder: Path) -> Files:
    """Writes generated rows to a Parquet file that an engine can read."""
    path = folder / "spooled.parquet"
    writer: pq.ParquetWriter | None = None
    for batch in rows.batches():
        writer = writer or pq.ParquetWriter(path, batch.schema)
        writer.write_batch(batch)
    if writer is None:
        raise DataError("The source holds no rows. Allowed: 1 or more. Check the raw file.")
    writer.close()
    columns = tuple(pq.read_schema(path).names)
    return Files(
        (path,), columns, rows.fields, rows.label, rows.rules,
        delimiter=None, positive=rows.positive, cells=rows.cells, threshold=rows.threshold,
    )  # fmt: skip


def read_batches(
    folder: Path, repeated: Sequence[str] = (), columns: Sequence[str] | None = None, as_stored: bool = False
) -> Iterator[pa.RecordBatch]:
    """Yields the rows of Parquet files in order, as `read_file` does."""
    for path in parquet_files(folder):
        yield from read_file(path, repeated, columns, as_stored)


def parquet_files(folder: Path) -> list[Path]:
    """Returns the files that an engine wrote, in the order of their rows."""
    return sorted(folder.glob("*.parquet"))


def read_file(
    path: Path, repeated: Sequence[str] = (), columns: Sequence[str] | None = None, as_stored: bool = False
) -> Iterator[pa.RecordBatch]:
    """Yields the rows of a Parquet file in order.

    Columns of `repeated` text become dictionary arrays; with `as_stored`, also those that are stored as dictionaries.
    """
    # pre_buffer would keep all data in memory until the last row; a buffer size reads columns in chunks
    with pq.ParquetFile(path, pre_buffer=False, buffer_size=1 << 20) as file:
        flat = {column.name for column in file.schema_arrow if not pa.types.is_nested(column.type)}
        texts = (flat & {*repeated}) | (stored_dictionaries(file.metadata) if as_stored else set())
        first = next(file.iter_batches(2048, columns=columns), None)
        rows = max(1, min(BATCH, BATCH_BYTES // max(1, first.nbytes // len(first)))) if first is not None else 1
        groups = range(file.num_row_groups)
    with pq.ParquetFile(path, pre_buffer=False, buffer_size=1 << 20, read_dictionary=sorted(texts)) as file:
        for group in groups:  # each has dictionaries of its own, which a batch of several would have to join
            yield from file.iter_batches(rows, row_groups=[group], columns=columns)


def stored_dictionaries(about: pq.FileMetaData) -> set[str]:
    """Returns the columns of text that the first rows of a Parquet file hold as dictionaries."""
    if not about.num_row_groups:
        return set()
    group = about.row_group(0)
    texts = {column.name for column in about.schema.to_arrow_schema() if pa.types.is_string(column.type)}
    columns = (group.column(index) for index in range(group.num_columns))
    return {column.path_in_schema for column in columns if column.has_dictionary_page} & texts


def column_bytes(folder: Path, name: str) -> int:
    """Returns the bytes of a column in Parquet files, before compression."""
    files = [pq.read_metadata(path) for path in parquet_files(folder)]
    groups = [about.row_group(index) for about in files for index in range(about.num_row_groups)]
    columns = [group.column(index) for group in groups for index in range(group.num_columns)]
    return sum(column.total_uncompressed_size for column in columns if column.path_in_schema.split(".")[0] == name)


def every_nth(batches: Iterable[pa.RecordBatch], every: int, before: int = 0) -> pa.Table:
    """Returns every n-th row of batches, counted from the first of the `before` rows that precede them."""
    taken: list[pa.RecordBatch] = []
    done = before
    for batch in batches:
        taken.append(batch if every == 1 else batch.take(pa.array(np.arange(-done % every, len(batch), every))))
        done += len(batch)
    pa.default_memory_pool().release_unused()  # the engine may need it
    return pa.Table.from_batches(taken)


def check_same_columns(files: Files) -> None:
    """Refuses Parquet files whose columns differ from the first file's."""
    for path in files.paths[1:]:
        names = tuple(parquet_sample(path).column_names)
        if set(names) != set(files.columns):
            raise DataError(
                f"'{path}' has the columns {', '.join(names)}; '{files.paths[0]}' has {', '.join(files.columns)}. "
                "Allowed: the same columns in all files. Select files with the same columns."
            )
