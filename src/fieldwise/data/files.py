"""Finds raw files, and reads the first rows of Parquet files."""

import gzip
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from glob import glob
from pathlib import Path
from typing import Final, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from fieldwise.core.errors import DataError
from fieldwise.data.names import column_names
from fieldwise.data.packed import PACKED, READ_ERRORS, open_bytes, plain_name
from fieldwise.data.text_layout import SAMPLE

Format = Literal["text", "json", "parquet"]
JSON: Final = (".jsonl", ".ndjson")
PARQUET: Final = (".parquet", ".pq")
TEXT: Final = (".zip", *(text + packed for text in (".csv", ".tsv", ".txt") for packed in ("", *PACKED)))
ENDINGS: Final = (*PARQUET, *TEXT, *(text + packed for text in JSON for packed in ("", *PACKED)))
"""Endings of the files of a folder that are read."""
Raw = Path | str | Sequence[Path | str]
"""Where rows are: a file, a folder, a glob, or a list of them."""


def find(raw: Raw, endings: tuple[str, ...] = ENDINGS) -> tuple[Path, ...]:
    """Returns the files of a path, a folder, a glob, or a list of them; those of one path sorted by name."""
    found = [path for part in ([raw] if isinstance(raw, Path | str) else raw) for path in _find(part, endings)]
    formats = {format_of(path) for path in found}
    if len(formats) > 1:
        raise DataError(
            f"'{_shown(raw)}' mixes {' and '.join(sorted(formats))}. Allowed: one of them. Select one kind, such as "
            "'*.parquet'."
        )
    if not found:
        raise DataError("No file is named. Allowed: 1 or more. Name a file, a folder or a glob.")
    return tuple(dict.fromkeys(found))


def _shown(raw: Raw) -> str:
    return str(raw) if isinstance(raw, Path | str) else ", ".join(map(str, raw))


def format_of(path: Path) -> Format:
    """Returns the format of a file, by its name or by the name of what it contains."""
    name = plain_name(path)
    return "parquet" if name.endswith(PARQUET) else "json" if name.endswith(JSON) else "text"


def _find(raw: Path | str, endings: tuple[str, ...]) -> tuple[Path, ...]:
    path = Path(raw)
    plain = [ending for ending in endings if not ending.endswith(PACKED)]
    allowed = f"Allowed: a file, a folder or a glob of {', '.join(plain)}, also {', '.join(PACKED)}."
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
    return tuple(found)


def sizes(paths: tuple[Path, ...]) -> dict[str, int]:
    """Returns file sizes by path relative to the common folder, which identify the content at any location."""
    absolute = [path.absolute() for path in paths]
    shared = os.path.commonpath([path.parent for path in absolute])
    return {path.relative_to(shared).as_posix(): path.stat().st_size for path in absolute}


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
    with open_bytes(path) as file:
        lines = (line.decode("utf-8", "replace").rstrip("\r\n") for line in file)
        return next((number for number, line in enumerate(lines, 1) if line == wanted), None)


def parquet_sample(path: Path) -> pa.Table:
    """Returns the first rows of a Parquet file, with unique names."""
    with _parquet(path) as file:
        batch = next(file.iter_batches(SAMPLE), None)
        table = pa.Table.from_batches([] if batch is None else [batch], file.schema_arrow)
        named = table.rename_columns(column_names(table.column_names))
        return named.replace_schema_metadata(file.schema_arrow.metadata)  # renaming drops it


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
