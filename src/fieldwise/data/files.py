"""Finds raw files and reads their headers and first rows."""

import csv
import gzip
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from glob import glob
from itertools import islice
from pathlib import Path
from typing import Final, TextIO

import pyarrow as pa
import pyarrow.parquet as pq

from fieldwise.core.errors import DataError
from fieldwise.data.magic import not_text

TEXT: Final = (".csv", ".tsv", ".txt", ".csv.gz", ".tsv.gz", ".txt.gz")
PARQUET: Final = (".parquet", ".pq")
SAMPLE: Final = 10_000
"""Rows read to infer field kinds."""
READ_ERRORS: Final = (OSError, EOFError, zlib.error)
"""Exceptions raised while reading a damaged plain or gzip file."""
_DELIMITERS: Final = ",\t;|"


def find(raw: Path | str, endings: tuple[str, ...] = (*TEXT, *PARQUET)) -> tuple[Path, ...]:
    """Returns the files of a path, a folder or a glob, sorted by name."""
    path, allowed = Path(raw), f"Allowed: a file, a folder or a glob of {', '.join(endings)}."
    if path.is_dir():
        found = [p for p in sorted(path.iterdir()) if p.is_file() and p.name.lower().endswith(endings)]
        if not found:
            raise DataError(f"The folder '{raw}' holds no matching file. {allowed} Give another folder.")
    elif path.exists():
        found = [path]
    else:
        found = [Path(p) for p in sorted(glob(str(raw), recursive=True)) if Path(p).is_file()]  # noqa: PTH207
        if not found:
            raise DataError(f"'{raw}' does not exist. {allowed} Check the path.")
    kinds = {_is_parquet(p) for p in found}
    if len(kinds) > 1:
        raise DataError(
            f"'{raw}' mixes text and Parquet. Allowed: one of the two. Select one kind, such as '*.parquet'."
        )
    return tuple(found)


def sizes(paths: tuple[Path, ...]) -> dict[str, int]:
    """Returns file sizes by path relative to the common folder, which identify the content at any location."""
    absolute = [path.absolute() for path in paths]
    shared = os.path.commonpath([path.parent for path in absolute])
    return {path.relative_to(shared).as_posix(): path.stat().st_size for path in absolute}


def is_parquet(paths: tuple[Path, ...]) -> bool:
    """Returns whether the files are Parquet, not text."""
    return _is_parquet(paths[0])


@contextmanager
def open_text(path: Path) -> Iterator[TextIO]:
    """Opens a text file, plain or gzip; raises DataError if it is not UTF-8."""
    opener = gzip.open if path.name.endswith(".gz") else open
    try:
        wrong = not_text(path) if opener is open else None
        if wrong:
            raise DataError(wrong)
        with opener(path, "rt", encoding="utf-8-sig", newline="") as file:
            yield file
    except UnicodeDecodeError as error:
        raise DataError(
            f"'{path}' is not UTF-8 text ({error.reason}: byte 0x{error.object[error.start]:02x}). "
            f"Convert it first, for example: iconv -f latin1 -t utf-8 '{path.name}'."
        ) from error
    except READ_ERRORS as error:
        raise DataError(f"'{path}' cannot be read ({error}). Check the file.") from error


def check_gzip(paths: tuple[Path, ...]) -> None:
    """Refuses truncated or damaged gzip files: engines would read the remainder, or noise, as rows."""
    for path in paths:
        if path.name.endswith(".gz"):
            try:
                with gzip.open(path, "rb") as file:
                    while file.read(1 << 20):
                        pass
            except READ_ERRORS as error:
                raise DataError(f"'{path}' is damaged ({error}). Download or compress it again.") from error


def line_of(path: Path, text: str) -> int | None:
    """Returns the number of the first line equal to the text; None if the file is not on this machine."""
    if not path.exists():
        return None
    wanted = text.splitlines()[0] if text else ""
    opener = gzip.open if path.name.endswith(".gz") else open
    with opener(path, "rb") as file:
        lines = (line.decode("utf-8", "replace").rstrip("\r\n") for line in file)
        return next((number for number, line in enumerate(lines, 1) if line == wanted), None)


def delimiter_of(path: Path) -> str:
    """Returns the most frequent delimiter of the first line."""
    with open_text(path) as file:
        line = file.readline()
    if not line.strip():
        raise DataError(f"'{path}' begins with an empty line. Allowed: a header with the column names. Add one.")
    return max(_DELIMITERS, key=line.count)


def text_header(path: Path, delimiter: str) -> tuple[str, ...]:
    """Returns the column names of a text file."""
    with open_text(path) as file:
        return tuple(next(csv.reader(file, delimiter=delimiter), ()))


def check_same_headers(paths: tuple[Path, ...], delimiter: str) -> None:
    """Refuses text files whose header differs from the first, since text columns are read by position."""
    first = text_header(paths[0], delimiter)
    for path in paths[1:]:
        other = text_header(path, delimiter)
        if other != first:
            raise DataError(
                f"'{path}' has the columns {', '.join(other)}; '{paths[0]}' has {', '.join(first)}. "
                "Allowed: the same columns in all files, in the same order. Select files with one header."
            )


def text_sample(path: Path, delimiter: str) -> pa.Table:
    """Returns the first rows of a text file with a header, all columns as text; skips rows of a wrong length."""
    with open_text(path) as file:
        reader = csv.reader(file, delimiter=delimiter)
        names = next(reader)
        try:
            rows = [row for row in islice(reader, SAMPLE) if len(row) == len(names)]
        except csv.Error as error:
            raise DataError(f"'{path}', line {reader.line_num}: {error}. Fix that line.") from error
    return pa.table({name: pa.array([row[i] for row in rows], pa.string()) for i, name in enumerate(names)})


def parquet_sample(path: Path) -> pa.Table:
    """Returns the first rows of a Parquet file."""
    with _parquet(path) as file:
        batch = next(file.iter_batches(SAMPLE), None)
        return pa.Table.from_batches([] if batch is None else [batch], file.schema_arrow)


def parquet_columns(path: Path) -> int:
    """Returns the number of leaf columns of a Parquet file."""
    with _parquet(path) as file:
        return int(file.metadata.num_columns)


@contextmanager
def _parquet(path: Path) -> Iterator[pq.ParquetFile]:
    try:
        with pq.ParquetFile(path.absolute()) as file:
            yield file
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"'{path}' is no Parquet file ({str(error).splitlines()[0]}). Check the file.") from error


def _is_parquet(path: Path) -> bool:
    return path.name.lower().endswith(PARQUET)
