"""The Parquet file of a vocabulary, read so that it unfolds to no more than a small multiple of its size.

A value stands in a vocabulary once. So a file of n values has at least some bytes for each, and columns that repeat one
value, or are packed by a codec without a bound, are nobody's vocabulary.
"""

from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from fieldwise.core.plain_files import check_regular

_CODECS: Final = ("SNAPPY", "UNCOMPRESSED")
"""Snappy unfolds a byte to at most about 21."""
_ENCODINGS: Final = {"PLAIN", "PLAIN_DICTIONARY", "RLE_DICTIONARY", "RLE", "BIT_PACKED"}
_VALUES_A_BYTE: Final = 8
"""More different values than this for each byte of the file cannot be, with these codecs."""


def read_columns(path: Path, rows: int | None) -> tuple[pa.Array, pa.Array]:
    """Values and counts; ValueError where the file is no vocabulary, or has another number of rows."""
    size = check_regular(path)
    with pq.ParquetFile(path.absolute(), pre_buffer=False) as file:
        kind, found = _kind(path, file), file.metadata.num_rows
    if rows is not None and found != rows:
        raise ValueError(f"'{path.name}' holds {found} values, the field has {rows}")
    if found > _VALUES_A_BYTE * size:
        raise ValueError(f"'{path.name}' holds {found} values in {size} bytes, so not each once")
    texts = ["value"] if pa.types.is_string(kind) or pa.types.is_large_string(kind) else []
    with pq.ParquetFile(path.absolute(), pre_buffer=False, read_dictionary=texts) as file:
        table = file.read(["value", "count"], use_threads=False)
    if table.num_rows != found:
        raise ValueError(f"'{path.name}' holds {table.num_rows} values and says {found}")
    for part in table["value"].chunks if texts else ():  # before each is written out as often as it is there
        lengths = np.asarray(pc.binary_length(part.dictionary), dtype=np.int64)
        if lengths[np.asarray(part.indices.drop_null())].sum() > lengths.sum():
            raise ValueError(f"'{path.name}' holds a value twice")
    values = table["value"].cast(kind) if texts else table["value"]
    return _whole(values), _whole(table["count"]).cast(pa.int64())


def _kind(path: Path, file: pq.ParquetFile) -> pa.DataType:
    """The type of the values, from what the file says of itself."""
    schema, about = file.schema_arrow, file.metadata
    if sorted(schema.names) != ["count", "value"]:
        raise ValueError(f"'{path.name}' has the columns {', '.join(schema.names)[:80]}, not value and count")
    kind, count = schema.field("value").type, schema.field("count").type
    plain = (
        pa.types.is_integer, pa.types.is_floating, pa.types.is_string, pa.types.is_large_string, pa.types.is_timestamp,
        pa.types.is_date, pa.types.is_time, pa.types.is_duration, pa.types.is_boolean, pa.types.is_null,
    )  # fmt: skip
    if not any(is_plain(kind) for is_plain in plain) or not pa.types.is_integer(count):
        raise ValueError(f"'{path.name}' holds values of type {kind!s:.80} and counts of type {count!s:.80}")
    for group in range(about.num_row_groups):
        for column in range(about.num_columns):
            chunk = about.row_group(group).column(column)
            strange = {*chunk.encodings} - _ENCODINGS
            if chunk.compression not in _CODECS or strange:
                packed = ", ".join([chunk.compression, *sorted(strange)])
                raise ValueError(
                    f"'{path.name}' is packed by {packed}. Allowed: {', '.join(_CODECS)}, plain or dictionary"
                )
    return kind


def _whole(column: pa.ChunkedArray) -> pa.Array:
    whole = column.combine_chunks()
    return pa.concat_arrays(whole.chunks) if isinstance(whole, pa.ChunkedArray) else whole
