"""Reads raw rows to predict from files of any size, batch by batch, without an engine."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq

from fieldwise.core.errors import DataError
from fieldwise.core.hints import either
from fieldwise.data.cells import Cells, has_decimal_commas
from fieldwise.data.files import Raw, find, format_of
from fieldwise.data.json_lines import json_batches, json_schema
from fieldwise.data.names import column_names
from fieldwise.data.packed import open_bytes
from fieldwise.data.text_layout import UTF8, TextLayout, check_encoding, layout_of, text_rows, text_sample
from fieldwise.exports.predictor import BATCH

_BLOCK: Final = 2**24
"""Bytes of text read at a time."""
_SMALL_BLOCK: Final = 2**20
"""Bytes of text with lines of at most this size that are read at a time."""
_LONG_LINE: Final = "straddl"
"""Part of Arrow's message for a line that is longer than a block."""
_ROWS: Final = 8_192
"""Rows of spaced text read at a time."""


_DICTIONARY: Final = 2**18
"""Bytes of a column's dictionary in a row group, from which on its text is read as it is."""


class RawRows:
    """The rows of CSV, TSV, JSON Lines or Parquet files: a file, a folder, a glob, or a list of them."""

    def __init__(
        self, raw: Raw, header: Sequence[str] = (), delimiter: str | None = None, encoding: str = UTF8
    ) -> None:
        """Finds the files and their columns; `header` names the columns of text files that have no header line."""
        self._paths = find(raw)
        self._format = format_of(self._paths[0])
        if self._format != "text" and header:
            what = either("Leave --header out.", "Leave header out.")
            raise DataError(f"'{self._paths[0]}' is {self._format}, which names its columns itself. {what}")
        texts = self._paths if self._format == "text" else ()
        self._layouts = {path: layout_of(path, tuple(header), delimiter, _checked(encoding)) for path in texts}
        self._json = json_schema(*self._paths) if self._format == "json" else None
        parquet = self._format == "parquet"
        self.rows = sum(self._open(path).metadata.num_rows for path in self._paths) if parquet else None
        """Number of rows, if known before reading."""

    def schema(self, columns: Sequence[str]) -> pa.Schema:
        """Returns the types of the given columns; refuses files in which one is missing."""
        schemas = [self._schema(path) for path in self._paths]
        for path, schema in zip(self._paths, schemas, strict=True):
            missing = [name for name in columns if name not in schema.names]
            if missing:
                has = ", ".join(schema.names[:50])
                raise DataError(f"'{path}' lacks the columns {', '.join(missing)}. It has: {has}. Add or rename them.")
        return pa.schema([schemas[0].field(name) for name in columns])

    def batches(self, columns: Sequence[str], typed: Sequence[str] = ()) -> Iterator[pa.RecordBatch]:
        """Iterates over all rows in order; `typed` are the columns that must have the types of `schema`.

        Text of Parquet files with few distinct values is otherwise a dictionary, as it is stored.
        """
        for path in self._paths:
            try:
                yield from self._batches(path, columns, typed)
            except (pa.ArrowException, OSError) as error:  # OSError: damaged gzip or Parquet
                line = str(error).splitlines()[0]
                hint = "Fix that row, or leave it out." if isinstance(error, pa.ArrowInvalid) else "Check the file."
                raise DataError(f"'{path}' cannot be read: {line}. {hint}") from error

    def _batches(self, path: Path, columns: Sequence[str], typed: Sequence[str]) -> Iterator[pa.RecordBatch]:
        if self._format == "json":
            return (batch.select(list(columns)) for batch in json_batches(path, self._json))
        if self._format == "parquet":
            return self._parquet(path, columns, typed)
        layout = self._layouts[path]
        batches = _spaced(path, layout, columns) if layout.spaced else _text(path, layout, columns)
        decimal = layout.delimiter != "," and has_decimal_commas(text_sample(path, layout).columns)
        return (_with_points(batch) for batch in batches) if decimal else batches

    def _parquet(self, path: Path, columns: Sequence[str], typed: Sequence[str]) -> Iterator[pa.RecordBatch]:
        with self._open(path) as file:
            stored = file.schema_arrow.names
            names = column_names(stored)
            wanted = [stored[names.index(name)] for name in columns]
            if stored.count("") or len(set(stored)) < len(stored):  # repeated names cannot be selected
                for batch in file.iter_batches(BATCH):
                    yield batch.rename_columns(names).select(list(columns))
                return
            few = _few_values(file) & {stored[names.index(name)] for name in columns if name not in typed}
        with self._open(path, few) as file:
            for batch in _of_equal_size(file.iter_batches(BATCH, columns=wanted)):
                yield batch.select(wanted).rename_columns(list(columns))

    def _schema(self, path: Path) -> pa.Schema:
        if self._format == "parquet":
            schema = self._open(path).schema_arrow
            return pa.schema([(name, schema.field(i).type) for i, name in enumerate(column_names(schema.names))])
        return self._json or pa.schema([(name, pa.string()) for name in self._layouts[path].columns])

    def _open(self, path: Path, dictionaries: Iterable[str] = ()) -> pq.ParquetFile:
        try:
            return pq.ParquetFile(  # reads pages, not whole row groups
                path.absolute(), buffer_size=_BLOCK, pre_buffer=False, read_dictionary=list(dictionaries)
            )
        except (OSError, pa.ArrowException) as error:
            raise DataError(f"'{path}' is not a Parquet file ({str(error).splitlines()[0]}). Check it.") from error


def _few_values(file: pq.ParquetFile) -> set[str]:
    """Returns the columns of text with a small dictionary in every row group; none if row groups are small."""
    about, names = file.metadata, file.schema_arrow.names
    if any(about.row_group(group).num_rows < BATCH for group in range(about.num_row_groups - 1)):
        return set()
    found = {name for name in names if pa.types.is_string(file.schema_arrow.field(name).type)}
    for place in range(about.num_columns):
        for group in range(about.num_row_groups) if about.schema.column(place).path in found else ():
            chunk = about.row_group(group).column(place)
            size = chunk.data_page_offset - chunk.dictionary_page_offset if chunk.has_dictionary_page else 0
            if not 0 < size < _DICTIONARY:
                found.discard(chunk.path_in_schema)
    return found


def _of_equal_size(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Joins the batches around the end of a row group, where dictionaries change: all but the last have BATCH rows."""
    rest: list[pa.RecordBatch] = []
    for batch in batches:
        rest.append(batch)
        if len(rest) > 1 or batch.num_rows < BATCH:
            *whole, last = pa.Table.from_batches(rest).combine_chunks().to_batches(BATCH)
            yield from whole
            rest = [last]
        if rest[0].num_rows == BATCH:
            yield rest.pop()
    yield from rest


def _checked(encoding: str) -> str:
    try:
        return check_encoding(encoding)
    except ValueError as error:
        raise DataError(f"Encoding {encoding!r:.40} is unknown: {error}.") from error


def _text(path: Path, layout: TextLayout, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yields rows of text; reads it in small blocks, which stay in the cache, as long as all lines fit into them."""
    done = 0
    try:
        for batch in _joined(_csv(path, layout, columns, _SMALL_BLOCK)):
            done += batch.num_rows
            yield batch
    except DataError as error:
        if _LONG_LINE not in str(error.__cause__):
            raise
        before = done
        for batch in _csv(path, layout, columns, _BLOCK):
            if batch.num_rows > before:
                yield batch.slice(before)
            before = max(0, before - batch.num_rows)


def _joined(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Joins small batches up to BATCH rows; an error comes after the rows before it."""
    taken: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        if taken and rows + batch.num_rows > BATCH:
            yield from pa.Table.from_batches(taken).combine_chunks().to_batches()
            taken, rows = [], 0
        taken.append(batch)
        rows += batch.num_rows
    if taken:
        yield from pa.Table.from_batches(taken).combine_chunks().to_batches()


def _csv(path: Path, layout: TextLayout, columns: Sequence[str], block: int) -> Iterator[pa.RecordBatch]:
    one = len(layout.columns) == 1  # with one column, an empty line is a row with a null
    with open_bytes(path) as file:
        stream: Any = pa.PythonFile(file, mode="r")
        yield from csv.open_csv(
            stream,
            csv.ReadOptions(
                block_size=block,
                column_names=layout.columns,
                skip_rows_after_names=int(layout.header),
                encoding="utf8" if layout.encoding == UTF8 else layout.encoding,
            ),
            csv.ParseOptions(delimiter=layout.delimiter, newlines_in_values=True, ignore_empty_lines=not one),
            csv.ConvertOptions(
                column_types=dict.fromkeys(columns, pa.string()),
                include_columns=list(columns),
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
                null_values=[""],
            ),
        )


def _with_points(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Returns rows of a file with decimal commas, with decimal points."""
    clean = Cells(decimal=",").clean
    return pa.RecordBatch.from_arrays([clean(column) for column in batch.columns], names=batch.schema.names)


def _spaced(path: Path, layout: TextLayout, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yields rows of text with a space after each delimiter."""
    places = [layout.columns.index(name) for name in columns]
    rows: list[list[str | None]] = []
    for line, cells in text_rows(path, layout):
        if cells and len(cells) != len(layout.columns):
            raise DataError(
                f"'{path}', line {line:,}: {len(cells)} columns. Allowed: {len(layout.columns)}. Fix that row."
            )
        if cells:
            rows.append([cells[place] or None for place in places])
        if len(rows) == _ROWS:
            yield _batch(rows, columns)
            rows = []
    if rows:
        yield _batch(rows, columns)


def _batch(rows: Sequence[Sequence[str | None]], columns: Sequence[str]) -> pa.RecordBatch:
    arrays = [pa.array([row[i] for row in rows], pa.string()) for i in range(len(columns))]
    return pa.RecordBatch.from_arrays(arrays, names=list(columns))
