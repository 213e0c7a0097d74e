"""Rewrites raw files that engines do not read alike: JSON Lines, other encodings, names that collide."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from fieldwise.data.engines.columns import column
from fieldwise.data.engines.staging import check_same_columns
from fieldwise.data.files import check_gzip
from fieldwise.data.json_lines import json_batches, json_schema
from fieldwise.data.names import collide, column_names
from fieldwise.data.packed import is_packed
from fieldwise.data.source import Files
from fieldwise.data.text_layout import write_plain


def readable(files: Files, folder: Path) -> Files:
    """Returns the same rows in files that every engine reads; rewrites only what needs it, into the folder."""
    if files.is_text:
        plain = files.layout.is_plain and not any(is_packed(p) and p.suffix.lower() != ".gz" for p in files.paths)
        if plain:
            check_gzip(files.paths)
        return files if plain else _as_plain_text(files, folder)
    if files.is_json:
        return _as_parquet(files, folder)
    check_same_columns(files)
    return _as_parquet(files, folder) if collide(pq.read_schema(files.paths[0]).names) else files


def _as_plain_text(files: Files, folder: Path) -> Files:
    folder.mkdir()
    written, layout = {}, files.layout
    for index, path in enumerate(files.paths):
        out = folder / f"{index}.csv"
        layout = write_plain(path, files.layout, out)
        written[str(out)] = path
    paths = tuple(Path(path) for path in written)
    return replace(
        files, paths=paths, header=layout.header, encoding=layout.encoding, spaced=layout.spaced, shown=written
    )


def _as_parquet(files: Files, folder: Path) -> Files:
    """Writes one Parquet file with numbered names; columns have the types of all files together."""
    folder.mkdir()
    names = [column(index) for index in range(len(files.columns))]
    path = folder / "0.parquet"
    writer: pq.ParquetWriter | None = None
    for batch in _batches(files):
        batch = batch.rename_columns(names)
        writer = writer or pq.ParquetWriter(path, batch.schema)
        writer.write_batch(batch)
    if writer is not None:
        writer.close()
    return replace(files, paths=(path,), is_json=False, stored=tuple(names))


def _batches(files: Files) -> Iterator[pa.RecordBatch]:
    if files.is_json:
        schema = json_schema(*files.paths)
        order = [schema.get_field_index(name) for name in files.columns]
        for path in files.paths:
            for batch in json_batches(path, schema):
                yield batch.select(order)
        return
    for path in files.paths:
        with pq.ParquetFile(path) as file:
            places = {name: index for index, name in enumerate(column_names(file.schema_arrow.names))}
            for batch in file.iter_batches():
                yield batch.select([places[name] for name in files.columns])
