"""Writes staged rows to Parquet: text that repeats is stored as dictionaries, which later steps read as they are."""

from collections.abc import Iterable, Iterator
from contextlib import closing
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from fieldwise.core.in_order import read_ahead
from fieldwise.data.cells import Cells
from fieldwise.data.engines.written_counts import ValueCounts, WrittenCounts, count_values, whole

READ: Final = 16_384
"""Rows that an engine hands over at a time."""
GROUP_BYTES: Final = 32 << 20
"""Approximate maximum bytes of a row group in memory; up to four of them are there at a time."""
_REPEATED: Final = 3
"""Text is stored as a dictionary if the values of the first rows occur this often, on average."""
_PLAIN: Final = (
    pa.types.is_string, pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_date32,
)  # fmt: skip


def is_plain(schema: pa.Schema) -> bool:
    """Whether all columns have types that Arrow and every engine store in Parquet alike."""
    return all(any(check(kind) for check in _PLAIN) for kind in schema.types)


def write_rows(
    schema: pa.Schema,
    batches: Iterable[pa.RecordBatch],
    path: Path,
    rows: int,
    counts: WrittenCounts,
    cells: Cells | None = None,
) -> None:
    """Writes the batches in order, with at most this many rows per row group, and counts their values.

    One more thread takes the batches, and another makes dictionaries. With `cells`, text is cleaned, except in the
    first column, which is the label.
    """
    with closing(read_ahead(_groups(schema, batches, rows))) as groups:
        first = next(groups, schema.empty_table())
        stored = _stored(first)
        coded = [field.name for field in stored if pa.types.is_dictionary(field.type)]
        work = partial(_encoded, stored=stored, cells=cells or Cells())
        with (
            closing(read_ahead(map(work, chain([first], groups)))) as encoded,
            pq.ParquetWriter(
                path,
                stored,
                compression="lz4",
                use_dictionary=coded,
                dictionary_pagesize_limit=1 << 30,
                write_statistics=False,
                store_schema=False,  # read as the types of `schema`
            ) as writer,
        ):
            del first
            for group, found in encoded:
                writer.write_table(group, max(1, group.num_rows))
                counts.add(found)
    pa.default_memory_pool().release_unused()  # the engine may need it


def _stored(first: pa.Table) -> pa.Schema:
    """Returns the schema of the rows with dictionaries for text that repeats in the first of them."""
    coded = pa.dictionary(pa.int32(), pa.string())
    return pa.schema([(name, coded if _repeats(first[name]) else first[name].type) for name in first.column_names])


def _groups(schema: pa.Schema, batches: Iterable[pa.RecordBatch], rows: int) -> Iterator[pa.Table]:
    """Joins batches to row groups."""
    taken: list[pa.RecordBatch] = []
    count = size = 0
    for batch in batches:
        taken.append(batch)
        count, size = count + batch.num_rows, size + batch.nbytes
        if count + READ > rows or size + size // len(taken) > GROUP_BYTES:
            yield pa.Table.from_batches(taken, schema)
            taken, count, size = [], 0, 0
    if taken:
        yield pa.Table.from_batches(taken, schema)


def _repeats(column: pa.ChunkedArray) -> bool:
    return bool(pa.types.is_string(column.type) and _REPEATED * pc.count_distinct(column).as_py() <= len(column))


def _encoded(group: pa.Table, stored: pa.Schema, cells: Cells) -> tuple[pa.Table, ValueCounts]:
    """Returns the rows as they are stored, and the counts of their values."""
    columns = [
        column.combine_chunks().dictionary_encode() if pa.types.is_dictionary(kind) else column
        for column, kind in zip(group.columns, stored.types, strict=True)
    ]
    if not cells.unchanged:  # after dictionaries, of which only the distinct values are cleaned
        columns[1:] = [cells.clean(whole(column)) for column in columns[1:]]
    rows = pa.Table.from_arrays(columns, schema=stored)
    return rows, count_values(rows)
