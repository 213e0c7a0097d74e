"""Writes staged rows to Parquet: text that repeats is stored as dictionaries, which later steps read as they are."""

from collections.abc import Iterable, Iterator
from contextlib import closing
from itertools import chain
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from fieldwise.core.in_order import read_ahead
from fieldwise.data.cells import Cells

READ: Final = 16_384
"""Rows that an engine hands over at a time."""
GROUP_BYTES: Final = 32 << 20
"""Approximate maximum bytes of a row group in memory; up to four of them are there at a time."""
_REPEATED: Final = 8
"""Text is stored as a dictionary if the values of the first rows occur this often, on average."""
_PLAIN: Final = (
    pa.types.is_string, pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_date32,
)  # fmt: skip


def is_plain(schema: pa.Schema) -> bool:
    """Whether all columns have types that Arrow and every engine store in Parquet alike."""
    return all(any(check(kind) for check in _PLAIN) for kind in schema.types)


def write_rows(
    schema: pa.Schema, batches: Iterable[pa.RecordBatch], path: Path, rows: int, cells: Cells | None = None
) -> None:
    """Writes the batches in order, with at most this many rows per row group; another thread takes them.

    With `cells`, text is cleaned, except in the first column, which is the label.
    """
    with closing(read_ahead(_groups(schema, batches, rows))) as groups:
        first = next(groups, schema.empty_table())
        repeated = [_repeats(column) for column in first.columns]
        coded = pa.dictionary(pa.int32(), pa.string())
        stored = pa.schema(
            [(f.name, coded if repeats else f.type) for f, repeats in zip(schema, repeated, strict=True)]
        )
        with pq.ParquetWriter(
            path,
            stored,
            compression="lz4",
            use_dictionary=[f.name for f in stored if f.type == coded],
            dictionary_pagesize_limit=1 << 30,
            write_statistics=False,
            store_schema=False,  # read as the types of `schema`
        ) as writer:
            for group in chain([first], groups):
                writer.write_table(_encoded(group, stored, cells or Cells()), max(1, group.num_rows))
    pa.default_memory_pool().release_unused()  # the engine may need it


def _groups(schema: pa.Schema, batches: Iterable[pa.RecordBatch], rows: int) -> Iterator[pa.Table]:
    """Joins batches to row groups."""
    taken: list[pa.RecordBatch] = []
    for batch in batches:
        taken.append(batch)
        count, size = sum(part.num_rows for part in taken), sum(part.nbytes for part in taken)
        if count + READ > rows or size + size // len(taken) > GROUP_BYTES:
            yield pa.Table.from_batches(taken, schema)
            taken = []
    if taken:
        yield pa.Table.from_batches(taken, schema)


def _repeats(column: pa.ChunkedArray) -> bool:
    return bool(pa.types.is_string(column.type) and _REPEATED * pc.count_distinct(column).as_py() <= len(column))


def _encoded(group: pa.Table, stored: pa.Schema, cells: Cells) -> pa.Table:
    columns = [
        column.dictionary_encode() if pa.types.is_dictionary(kind) else column
        for column, kind in zip(group.columns, stored.types, strict=True)
    ]
    if not cells.unchanged:  # after dictionaries, of which only the distinct values are cleaned
        columns[1:] = [cells.clean(column.combine_chunks()) for column in columns[1:]]
    return pa.Table.from_arrays(columns, schema=stored)
