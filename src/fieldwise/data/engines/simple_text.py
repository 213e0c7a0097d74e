"""Reads simple text in this process, which takes half of DuckDB's time.

Simple text has no quotes, carriage returns and empty lines, and as many cells in every line. All other text is left to
the engine, which tells what is wrong with a row.
"""

import codecs
import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.csv as csv

from fieldwise.data.engines.engine import LABEL, SPLIT, field
from fieldwise.data.packed import is_packed
from fieldwise.data.source import Files

_BLOCK: Final = 1 << 20
"""Bytes read at a time; longer lines are not simple."""

_AHEAD: Final = 2**17
"""Rows whose splits are computed together."""


class NotSimpleError(Exception):
    """The text is not simple."""


def may_be_simple(files: Files) -> bool:
    """Whether the files are text that is not packed, and whose label is no comparison."""
    delimiter = files.delimiter or ""
    plain = files.threshold is None and files.layout.is_plain if delimiter else False
    one_sign = len(delimiter) == 1 and delimiter.isascii() and delimiter not in '"\r\n\0'
    return plain and one_sign and len(files.columns) > 1 and not any(is_packed(path) for path in files.paths)


def read_simple(files: Files, columns: Sequence[int]) -> Iterator[pa.RecordBatch]:
    """Yields the rows of all files in order: columns by their index, as text; NotSimpleError if they are not simple.

    The first column is the label. Text without a label in some row is not simple: Arrow reads empty lines as such rows.
    """
    for path in files.paths:
        try:
            with path.open("rb", buffering=0) as file:
                for batch in _parsed(_Checked(file, b'"' if files.quoted else b"\0"), files):
                    if batch.column(columns[0]).null_count:
                        raise ValueError("a row without a label")
                    yield batch.select(list(columns))
        except (pa.ArrowException, OSError, ValueError) as error:
            raise NotSimpleError(str(error)) from error


def _parsed(file: "_Checked", files: Files) -> Iterator[pa.RecordBatch]:
    names = [str(index) for index in range(len(files.columns))]
    stream: Any = pa.PythonFile(file, mode="r")
    read = csv.ReadOptions(block_size=_BLOCK, column_names=names, skip_rows_after_names=int(files.header))
    parse = csv.ParseOptions(delimiter=files.delimiter, quote_char=False, ignore_empty_lines=False)
    texts = dict.fromkeys(names, pa.string())
    convert = csv.ConvertOptions(
        column_types=texts, strings_can_be_null=True, null_values=[""], check_utf8=False
    )  # `_Checked` does
    return iter(csv.open_csv(stream, read, parse, convert))


def with_splits(
    batches: Iterable[pa.RecordBatch], splits: Callable[[int, int], pa.Array], fields: int
) -> Iterator[pa.RecordBatch]:
    """Yields staged rows of batches whose first column is the label; `splits` are those of rows from one to another."""
    names = [LABEL, SPLIT, *(field(index) for index in range(fields))]
    known, done = splits(0, _AHEAD), 0
    end = len(known)
    for batch in batches:
        while end < done + len(batch):
            known = pa.concat_arrays([known, splits(end, end + _AHEAD)])
            end += _AHEAD
        label, *others = batch.columns
        yield pa.record_batch([label, known.slice(0, len(batch)), *others], names)
        known, done = known.slice(len(batch)), done + len(batch)


class _Checked(io.RawIOBase):
    """A file that ends with an error at the first byte that simple text does not have."""

    def __init__(self, file: io.FileIO, quote: bytes) -> None:
        self._file, self._signs = file, (quote, b"\r", b"\0")
        self._decode = codecs.getincrementaldecoder("utf-8")().decode
        self._ascii, self._first = True, True

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size) or b""
        if any(sign in data for sign in self._signs) or (self._first and data.startswith((b"\n", codecs.BOM_UTF8))):
            raise ValueError("not simple text")
        self._first = False
        if not (self._ascii and data.isascii()):
            self._ascii = False
            self._decode(data, final=not data)  # UnicodeDecodeError, a ValueError
        return data
