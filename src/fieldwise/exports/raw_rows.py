"""Reads raw rows to predict from files of any size, batch by batch, without an engine."""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq

from fieldwise.core.errors import DataError
from fieldwise.core.hints import either
from fieldwise.data.files import delimiter_of, find, is_parquet, text_header
from fieldwise.exports.predictor import BATCH

_BLOCK: Final = 2**24
"""Bytes of text read at a time."""


class RawRows:
    """The rows of CSV, TSV or Parquet files: a file, a folder or a glob."""

    def __init__(self, raw: Path, header: Sequence[str] = ()) -> None:
        """Finds the files; `header` names the columns of text files that have no header line."""
        self._raw, self._paths, self._header = raw, find(raw), tuple(header)
        self._is_parquet = is_parquet(self._paths)
        if self._is_parquet and header:
            raise DataError(
                f"'{raw}' is Parquet, which names its columns itself. Leave {either('--header', 'header')} out."
            )
        self.rows = sum(self._open(path).metadata.num_rows for path in self._paths) if self._is_parquet else None
        """Number of rows, if known before reading."""

    def schema(self, columns: Sequence[str]) -> pa.Schema:
        """Returns the types of the given columns; refuses files in which one is missing or repeated."""
        schemas = [self._schema(path) for path in self._paths]
        for path, schema in zip(self._paths, schemas, strict=True):
            found = Counter(schema.names)
            missing = [name for name in columns if name not in found]
            if missing:
                has = ", ".join(schema.names[:50])
                raise DataError(f"'{path}' lacks the columns {', '.join(missing)}. It has: {has}. Add or rename them.")
            twice = [name for name in columns if found[name] > 1]
            if twice:
                raise DataError(f"'{path}' has the column {twice[0]} more than once. Rename one of them.")
        return pa.schema([schemas[0].field(name) for name in columns])

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Iterates over all rows in order."""
        for path in self._paths:
            try:
                yield from self._parquet(path, columns) if self._is_parquet else self._text(path, columns)
            except (pa.ArrowException, OSError) as error:  # OSError: damaged gzip or Parquet
                line = str(error).splitlines()[0]
                hint = "Fix that row, or leave it out." if isinstance(error, pa.ArrowInvalid) else "Check the file."
                raise DataError(f"'{path}' cannot be read: {line}. {hint}") from error

    def _parquet(self, path: Path, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        with self._open(path) as file:
            yield from file.iter_batches(BATCH, columns=list(columns))

    def _text(self, path: Path, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        one = len(self._schema(path)) == 1  # with one column, an empty line is a row with a null
        with pa.input_stream(path, compression="detect") as file:
            yield from csv.open_csv(
                file,
                csv.ReadOptions(block_size=_BLOCK, column_names=self._header or None),
                csv.ParseOptions(delimiter=delimiter_of(path), newlines_in_values=True, ignore_empty_lines=not one),
                csv.ConvertOptions(
                    column_types=dict.fromkeys(columns, pa.string()),
                    include_columns=list(columns),
                    strings_can_be_null=True,
                    quoted_strings_can_be_null=False,
                    null_values=[""],
                ),
            )

    def _schema(self, path: Path) -> pa.Schema:
        if self._is_parquet:
            return self._open(path).schema_arrow
        names = self._header or text_header(path, delimiter_of(path))
        return pa.schema([(name, pa.string()) for name in names])

    def _open(self, path: Path) -> pq.ParquetFile:
        try:
            return pq.ParquetFile(path.absolute(), buffer_size=_BLOCK, pre_buffer=False)  # pages, not whole row groups
        except (OSError, pa.ArrowException) as error:
            raise DataError(f"'{path}' is not a Parquet file ({str(error).splitlines()[0]}). Check it.") from error
