"""JSON Lines: one object per line; a key that a line lacks is null."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.json as js

from fieldwise.core.errors import DataError
from fieldwise.data.packed import open_bytes

_BLOCK: Final = 1 << 23
"""Approximate bytes read at a time."""
_MAX_LINE: Final = 1 << 26


def json_schema(*paths: Path) -> pa.Schema:
    """Returns the columns of whole files; integers and floats become floats, times and text become text."""
    found: dict[str, pa.DataType] = {}
    for path in paths:
        for batch in _tables(path, None):
            for field in batch.schema:
                found[field.name] = _common(path, field.name, found.get(field.name, pa.null()), field.type)
    if not found:
        raise DataError(f"'{paths[0]}' holds no rows. Allowed: one JSON object per line. Check the file.")
    return pa.schema([(name, pa.string() if pa.types.is_null(kind) else kind) for name, kind in found.items()])


def json_batches(path: Path, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yields the rows of a file with the columns of a schema."""
    for table in _tables(path, schema):
        yield from table.select(schema.names).combine_chunks().to_batches()


def _tables(path: Path, schema: pa.Schema | None) -> Iterator[pa.Table]:
    extra = "infer" if schema is None else "ignore"
    options = js.ParseOptions(explicit_schema=schema, unexpected_field_behavior=extra, newlines_in_values=False)
    for block in _blocks(path):
        try:
            yield js.read_json(
                pa.BufferReader(block), js.ReadOptions(use_threads=False, block_size=len(block) + 1), options
            )
        except pa.ArrowException as error:
            line = str(error).splitlines()[0]
            raise DataError(f"'{path}' is not JSON Lines ({line}). Allowed: one JSON object per line.") from error


def _blocks(path: Path) -> Iterator[bytes]:
    """Yields whole lines, many at a time."""
    with open_bytes(path) as file:
        while lines := file.readlines(_BLOCK):
            block = b"".join(line for line in lines if line.strip()).removeprefix(b"\xef\xbb\xbf")
            if max(map(len, lines)) > _MAX_LINE:
                raise DataError(f"'{path}' has a line of more than {_MAX_LINE:,} bytes. Allowed: one object per line.")
            if block:
                yield block


def _common(path: Path, name: str, one: pa.DataType, other: pa.DataType) -> pa.DataType:
    """Returns a type for the values of two blocks."""
    if one == other or pa.types.is_null(other):
        return one
    if pa.types.is_null(one):
        return other
    if {one, other} <= {pa.int64(), pa.float64()}:
        return pa.float64()
    texts = [pa.types.is_string(kind) or pa.types.is_timestamp(kind) for kind in (one, other)]
    if all(texts):
        return pa.string()
    try:
        return (
            pa.unify_schemas([pa.schema([(name, one)]), pa.schema([(name, other)])], promote_options="permissive")
            .field(0)
            .type
        )
    except pa.ArrowException as error:
        raise DataError(
            f"'{path}': '{name}' holds {one} and {other}. Allowed: values of one type. Write all of them as text."
        ) from error
