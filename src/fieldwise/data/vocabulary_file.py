"""Reads the Parquet file of a vocabulary so that memory stays within a small multiple of the file size.

Values of a vocabulary are distinct, so each takes some bytes of the file. Columns that repeat a value, or use a codec
with an unbounded compression ratio, are refused.
"""

from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from fieldwise.core.plain_files import check_regular

_CODECS: Final = ("SNAPPY", "UNCOMPRESSED")
"""Snappy expands a byte to at most about 21 bytes."""
_ENCODINGS: Final = {"PLAIN", "PLAIN_DICTIONARY", "RLE_DICTIONARY", "RLE", "BIT_PACKED", "DELTA_BINARY_PACKED"}
_VALUES_PER_BYTE: Final = 8
"""Upper bound of distinct values per byte of the file, with these codecs."""


def write_compact(values: pa.Array, path: Path) -> None:
    """Writes only the values, which are distinct: no dictionary, and integers as packed differences."""
    kind = values.type
    packed = {"value": "DELTA_BINARY_PACKED"} if pa.types.is_int64(kind) else None
    # types other than these come back only with Arrow's own schema
    plain = pa.types.is_int64(kind) or pa.types.is_string(kind) or pa.types.is_float64(kind)
    pq.write_table(
        pa.table({"value": values}),
        path,
        use_dictionary=False,
        write_statistics=False,
        store_schema=not plain,
        column_encoding=packed,
    )


def read_columns(path: Path, rows: int | None) -> tuple[pa.Array, pa.Array]:
    """Returns values and counts, which are null where the file has none.

    ValueError if the file is not a vocabulary, or its length is not `rows`.
    """
    size = check_regular(path)
    with pq.ParquetFile(path.absolute(), pre_buffer=False) as file:
        kind, found = _kind(path, file), file.metadata.num_rows
        counted = "count" in file.schema_arrow.names
    if rows is not None and found != rows:
        raise ValueError(f"'{path.name}' holds {found} values, the field has {rows}")
    if found > _VALUES_PER_BYTE * size:
        raise ValueError(f"'{path.name}' holds {found} values in {size} bytes, so they are not distinct")
    texts = ["value"] if pa.types.is_string(kind) or pa.types.is_large_string(kind) else []
    with pq.ParquetFile(path.absolute(), pre_buffer=False, read_dictionary=texts) as file:
        table = file.read(["value", "count"] if counted else ["value"], use_threads=False)
    if table.num_rows != found:
        raise ValueError(f"'{path.name}' holds {table.num_rows} values, its metadata says {found}")
    for part in table["value"].chunks if texts else ():  # before the dictionary is expanded
        lengths = np.asarray(pc.binary_length(part.dictionary), dtype=np.int64)
        if lengths[np.asarray(part.indices.drop_null())].sum() > lengths.sum():
            raise ValueError(f"'{path.name}' holds a value twice")
    values = table["value"].cast(kind) if texts else table["value"]
    return _combined(values), _combined(table["count"]).cast(pa.int64()) if counted else pa.nulls(found)


def _kind(path: Path, file: pq.ParquetFile) -> pa.DataType:
    """Returns the type of the values from the file's metadata."""
    schema, about = file.schema_arrow, file.metadata
    if sorted(schema.names) not in (["count", "value"], ["value"]):
        raise ValueError(f"'{path.name}' has the columns {', '.join(schema.names)[:80]}, not value and count")
    kind = schema.field("value").type
    count = schema.field("count").type if "count" in schema.names else pa.int64()
    plain = (
        pa.types.is_integer, pa.types.is_floating, pa.types.is_string, pa.types.is_large_string, pa.types.is_timestamp,
        pa.types.is_date, pa.types.is_time, pa.types.is_duration, pa.types.is_boolean, pa.types.is_null,
    )  # fmt: skip
    if not any(is_plain(kind) for is_plain in plain) or not pa.types.is_integer(count):
        raise ValueError(f"'{path.name}' holds values of type {kind!s:.80} and counts of type {count!s:.80}")
    for group in range(about.num_row_groups):
        for column in range(about.num_columns):
            chunk = about.row_group(group).column(column)
            unsupported = {*chunk.encodings} - _ENCODINGS
            if chunk.compression not in _CODECS or unsupported:
                used = ", ".join([chunk.compression, *sorted(unsupported)])
                raise ValueError(
                    f"'{path.name}' is compressed with {used}. Allowed: {', '.join(_CODECS)}, plain or dictionary"
                )
    return kind


def _combined(column: pa.ChunkedArray) -> pa.Array:
    array = column.combine_chunks()
    return pa.concat_arrays(array.chunks) if isinstance(array, pa.ChunkedArray) else array
