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
BATCH_BYTES: Final = 64 << 20
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
    folder: Path, repeated: Sequence[str] = (), columns: Sequence[str] | None = None
) -> Iterator[pa.RecordBatch]:
    """Yields the rows of Parquet files in order; columns of `repeated` text become dictionary arrays."""
    for path in parquet_files(folder):
        yield from read_file(path, repeated, columns)


def parquet_files(folder: Path) -> list[Path]:
    """Returns the files that an engine wrote, in the order of their rows."""
    return sorted(folder.glob("*.parquet"))


def read_file(
    path: Path, repeated: Sequence[str] = (), columns: Sequence[str] | None = None
) -> Iterator[pa.RecordBatch]:
    """Yields the rows of a Parquet file in order; columns of `repeated` text become dictionary arrays."""
    flat = {column.name for column in pq.read_schema(path) if not pa.types.is_nested(column.type)}
    repeated = [name for name in repeated if name in flat]
    # pre_buffer would keep all data in memory until the last row; a buffer size reads columns in chunks
    with pq.ParquetFile(path, read_dictionary=repeated, pre_buffer=False, buffer_size=1 << 20) as file:
        first = next(file.iter_batches(2048, columns=columns), None)
        if first is not None:
            width = max(1, first.nbytes // len(first))
            yield from file.iter_batches(max(1, min(BATCH, BATCH_BYTES // width)), columns=columns)


def every_nth(batches: Iterable[pa.RecordBatch], every: int, before: int = 0) -> pa.Table:
    """Returns every n-th row of batches, counted from the first of the `before` rows that precede them."""
    taken: list[pa.RecordBatch] = []
    done = before
    for batch in batches:
        taken.append(batch if every == 1 else batch.take(pa.array(np.arange(-done % every, len(batch), every))))
        done += len(batch)
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
