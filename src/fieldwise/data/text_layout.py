"""How the text of a file is laid out: encoding, delimiter, header, spaces after delimiters."""

import codecs
import csv
import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import BinaryIO, Final, TextIO, cast

import pyarrow as pa

from fieldwise.core.errors import DataError
from fieldwise.core.hints import either
from fieldwise.data.magic import not_a_table
from fieldwise.data.names import column_names
from fieldwise.data.packed import open_bytes, shown

SAMPLE: Final = 1_000
"""Rows read to find names, types and the decimal sign of columns; kinds follow from other rows."""
DELIMITERS: Final = ",\t;|"
UTF8: Final = "utf-8"
_LINES: Final = 100
"""Lines that show whether spaces follow the delimiters."""
_START: Final = 64
"""Bytes that show what a file is."""


@dataclass(frozen=True, slots=True)
class TextLayout:
    """The columns of text files and how to find them."""

    columns: tuple[str, ...]
    delimiter: str
    header: bool = True
    """Whether the first line names the columns."""
    encoding: str = UTF8
    spaced: bool = False
    """Whether a space follows every delimiter; it does not belong to the value."""

    @property
    def is_plain(self) -> bool:
        """Whether engines read such text as it is."""
        return self.encoding == UTF8 and not self.spaced


def check_encoding(encoding: str) -> str:
    """Returns the name of a text encoding; ValueError for others."""
    try:
        found = codecs.lookup(encoding)
        "a".encode(encoding)
    except (LookupError, UnicodeError) as error:
        raise ValueError("allowed: a text encoding that Python knows, such as utf-8, latin-1 or cp1252") from error
    return UTF8 if found.name in ("utf-8", "utf-8-sig", "ascii") else found.name


def layout_of(path: Path, header: Sequence[str] = (), delimiter: str | None = None, encoding: str = UTF8) -> TextLayout:
    """Returns the layout of a text file; `header` names the columns of a file without a header line."""
    with open_text(path, encoding) as file:
        lines = list(islice(file, _LINES))
    if not lines:
        raise DataError(f"'{path}' is empty. Allowed: a header with the column names, and rows. Give another file.")
    if not lines[0].strip():
        raise DataError(f"'{path}' begins with an empty line. Allowed: a header with the column names. Add one.")
    delimiter = delimiter or max(DELIMITERS, key=lines[0].count)
    spaced = _is_spaced(lines, delimiter)
    first = next(csv.reader(lines, delimiter=delimiter, skipinitialspace=spaced))
    if header and len(header) != len(first):
        raise DataError(
            f"'{path}' has {len(first)} columns in its first line, the header names {len(header)}: "
            f"{', '.join(header[:9])}. Name every column."
        )
    names = header or ([name.strip() for name in first] if spaced else first)
    return TextLayout(column_names(names), delimiter, not header, encoding, spaced)


def _is_spaced(lines: Sequence[str], delimiter: str) -> bool:
    marks = sum(line.count(delimiter) for line in lines)
    return delimiter != "\t" and 0 < marks == sum(line.count(f"{delimiter} ") for line in lines)


def check_same_layout(first: Path, paths: Sequence[Path], layout: TextLayout) -> None:
    """Refuses text files whose header differs from the first, since text columns are read by position."""
    if not layout.header:
        return
    for path in paths:
        other = layout_of(path, (), layout.delimiter, layout.encoding).columns
        if other != layout.columns:
            raise DataError(
                f"'{path}' has the columns {', '.join(other)}; '{first}' has {', '.join(layout.columns)}. "
                "Allowed: the same columns in all files, in the same order. Select files with one header."
            )


@contextmanager
def open_text(path: Path, encoding: str = UTF8) -> Iterator[TextIO]:
    """Opens a text file, plain or compressed; raises DataError if it has another encoding."""
    try:
        with open_bytes(path) as file, io.TextIOWrapper(file, _python_name(encoding), newline="") as text:
            if not encoding.startswith(("utf-16", "utf-32")):
                _check_start(path, file)
            yield text
    except UnicodeDecodeError as error:
        what = f"{error.reason}: byte 0x{error.object[error.start]:02x}"
        name = either("--set data.encoding=latin-1, or for `predict` with --encoding latin-1", "encoding='latin-1'")
        raise DataError(
            f"'{path}' is not {encoding.upper()} text ({what}). Name its encoding, such as {name}."
        ) from error


def _check_start(path: Path, file: BinaryIO) -> None:
    """Refuses what is no table by its first bytes, which remain to be read."""
    wrong = not_a_table(cast(io.BufferedReader, file).peek(_START)[:_START])
    if wrong:
        raise DataError(f"{shown(path)} is {wrong[0]}, not a table in text. {wrong[1]}.")


def _python_name(encoding: str) -> str:
    return "utf-8-sig" if encoding == UTF8 else encoding


def text_rows(path: Path, layout: TextLayout) -> Iterator[tuple[int, list[str]]]:
    """Yields line number and cells of each row after the header; cells of spaced text without spaces around them."""
    with open_text(path, layout.encoding) as file:
        reader = csv.reader(file, delimiter=layout.delimiter, skipinitialspace=layout.spaced)
        try:
            if layout.header:
                next(reader, None)
            for row in reader:
                yield reader.line_num, [cell.strip(" \t") for cell in row] if layout.spaced else row
        except csv.Error as error:
            raise DataError(f"'{path}', line {reader.line_num}: {error}. Fix that line.") from error


def text_sample(path: Path, layout: TextLayout) -> pa.Table:
    """Returns the first rows of a text file, all columns as text; skips rows of a wrong length."""
    width = len(layout.columns)
    rows = [row for _, row in islice(text_rows(path, layout), SAMPLE) if len(row) == width]
    return pa.table({name: pa.array([row[i] for row in rows], pa.string()) for i, name in enumerate(layout.columns)})


def write_plain(path: Path, layout: TextLayout, out: Path) -> TextLayout:
    """Writes the text as engines read it: UTF-8, not compressed, no spaces after delimiters."""
    if not layout.spaced:
        with open_text(path, layout.encoding) as file, out.open("w", encoding=UTF8, newline="") as plain:
            while chunk := file.read(1 << 20):
                plain.write(chunk)
        return replace(layout, encoding=UTF8)
    with out.open("w", encoding=UTF8, newline="") as plain:
        writer = csv.writer(plain, delimiter=layout.delimiter, lineterminator="\n")
        writer.writerows([layout.columns] if layout.header else [])
        writer.writerows(row for _, row in text_rows(path, layout))
    return replace(layout, encoding=UTF8, spaced=False)


def seems_headerless(columns: Sequence[str]) -> bool:
    """Returns whether the names of columns look like values: one of them is a number."""
    return any(name.replace(".", "", 1).replace("-", "", 1).removesuffix("_2").isdigit() for name in columns)
