"""Which files a path means, and what their first rows look like."""

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

TEXT: Final = (".csv", ".tsv", ".txt", ".csv.gz", ".tsv.gz", ".txt.gz")
PARQUET: Final = (".parquet", ".pq")
SAMPLE: Final = 10_000
"""Rows that are looked at before any choice is made."""
DAMAGED: Final = (OSError, EOFError, zlib.error)
"""What reading a plain or gz file may raise."""
_DELIMITERS: Final = ",\t;|"


def find(raw: Path | str, endings: tuple[str, ...] = (*TEXT, *PARQUET)) -> tuple[Path, ...]:
    """The files of a path, a folder or a glob, sorted by name."""
    path, allowed = Path(raw), f"Allowed: a file, a folder or a glob of {', '.join(endings)}."
    if path.is_dir():
        found = [p for p in sorted(path.iterdir()) if p.is_file() and p.name.lower().endswith(endings)]
        if not found:
            raise DataError(f"The folder '{raw}' holds no matching file. {allowed} Name another folder.")
    elif path.exists():
        found = [path]
    else:
        found = [Path(p) for p in sorted(glob(str(raw), recursive=True)) if Path(p).is_file()]  # noqa: PTH207
        if not found:
            raise DataError(f"'{raw}' does not exist. {allowed} Check the path.")
    kinds = {_is_parquet(p) for p in found}
    if len(kinds) > 1:
        raise DataError(f"'{raw}' mixes text and Parquet. Allowed: one of them. Name one kind, such as '*.parquet'.")
    return tuple(found)


def sizes(paths: tuple[Path, ...]) -> dict[str, int]:
    """The files by size and path below the folder they share: what stands for their content, wherever they lie."""
    whole = [path.absolute() for path in paths]
    shared = os.path.commonpath([path.parent for path in whole])
    return {path.relative_to(shared).as_posix(): path.stat().st_size for path in whole}


def is_parquet(paths: tuple[Path, ...]) -> bool:
    """Whether the files are Parquet rather than text."""
    return _is_parquet(paths[0])


@contextmanager
def open_text(path: Path) -> Iterator[TextIO]:
    """A text file, plain or gz; says so when it is not UTF-8."""
    opener = gzip.open if path.name.endswith(".gz") else open
    try:
        with opener(path, "rt", encoding="utf-8-sig", newline="") as file:
            yield file
    except UnicodeDecodeError as error:
        raise DataError(
            f"'{path}' is not UTF-8 text ({error.reason}: byte 0x{error.object[error.start]:02x}). "
            f"Convert it first, for example: iconv -f latin1 -t utf-8 '{path.name}'."
        ) from error
    except DAMAGED as error:
        raise DataError(f"'{path}' cannot be read ({error}). Check the file.") from error


def check_whole(paths: tuple[Path, ...]) -> None:
    """Refuses gz files that are cut or damaged anywhere: engines read what is left of them, or noise, as rows."""
    for path in paths:
        if path.name.endswith(".gz"):
            try:
                with gzip.open(path, "rb") as file:
                    while file.read(1 << 20):
                        pass
            except DAMAGED as error:
                raise DataError(f"'{path}' is damaged ({error}). Fetch or compress it again.") from error


def line_of(path: Path, text: str) -> int | None:
    """The number of the first line that reads so, or nothing where the file is not on this machine."""
    if not path.exists():
        return None
    wanted = text.splitlines()[0] if text else ""
    opener = gzip.open if path.name.endswith(".gz") else open
    with opener(path, "rb") as file:
        lines = (line.decode("utf-8", "replace").rstrip("\r\n") for line in file)
        return next((number for number, line in enumerate(lines, 1) if line == wanted), None)


def delimiter_of(path: Path) -> str:
    """The delimiter that the first line holds most often."""
    with open_text(path) as file:
        line = file.readline()
    if not line.strip():
        raise DataError(f"'{path}' begins with an empty line. Allowed: a header with the column names. Add one.")
    return max(_DELIMITERS, key=line.count)


def text_header(path: Path, delimiter: str) -> tuple[str, ...]:
    """The column names of a text file."""
    with open_text(path) as file:
        return tuple(next(csv.reader(file, delimiter=delimiter), ()))


def same_headers(paths: tuple[Path, ...], delimiter: str) -> None:
    """Refuses text files whose columns are not those of the first one, since rows of text are read by place."""
    first = text_header(paths[0], delimiter)
    for path in paths[1:]:
        other = text_header(path, delimiter)
        if other != first:
            raise DataError(
                f"'{path}' has the columns {', '.join(other)}; '{paths[0]}' has {', '.join(first)}. "
                "Allowed: the same columns in all files, in the same order. Name files of one kind."
            )


def text_sample(path: Path, delimiter: str) -> pa.Table:
    """The first rows of a text file with a header, every column as text; rows of another length are left out."""
    with open_text(path) as file:
        reader = csv.reader(file, delimiter=delimiter)
        names = next(reader)
        try:
            rows = [row for row in islice(reader, SAMPLE) if len(row) == len(names)]
        except csv.Error as error:
            raise DataError(f"'{path}', line {reader.line_num}: {error}. Mend that line.") from error
    return pa.table({name: pa.array([row[i] for row in rows], pa.string()) for i, name in enumerate(names)})


def parquet_sample(path: Path) -> pa.Table:
    """The first rows of a Parquet file."""
    with _parquet(path) as file:
        batch = next(file.iter_batches(SAMPLE), None)
        return pa.Table.from_batches([] if batch is None else [batch], file.schema_arrow)


def parquet_columns(path: Path) -> int:
    """How many columns a Parquet file has, entries of structs counted one by one."""
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
