"""Opens compressed files: gzip, bzip2, zstd, and zip archives with one file."""

import bz2
import gzip
import io
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

import pyarrow as pa

from fieldwise.core.errors import DataError

PACKED: Final = (".gz", ".bz2", ".zst", ".zip")
"""Endings of compressed files."""
READ_ERRORS: Final = (OSError, EOFError, zlib.error, zipfile.BadZipFile, pa.ArrowException)
"""Exceptions raised while reading a damaged file."""
_FREE: Final = 1 << 30
"""Bytes that any file may unpack to."""
_RATIO: Final = 1_000
"""A larger file may unpack to this multiple of its size; rows of text compress 3 to 30 times."""


def plain_name(path: Path) -> str:
    """Returns the lowercase name of the content of a file: without the ending of its compression."""
    name = path.name.lower()
    if name.endswith(".zip") and path.is_file():
        return Path(_member(path).filename).name.lower()
    return next((name.removesuffix(ending) for ending in PACKED if name.endswith(ending)), name)


def is_packed(path: Path) -> bool:
    """Returns whether a file is compressed, by its name."""
    return path.name.lower().endswith(PACKED)


def shown(path: Path) -> str:
    """Returns a file as messages name it, with the file that an archive holds."""
    if path.suffix.lower() != ".zip":
        return f"'{path}'"
    return f"'{path}' holds '{_member(path).filename}', which"


@contextmanager
def open_bytes(path: Path) -> Iterator[BinaryIO]:
    """Opens the content of a file; refuses damaged files, and files that unpack to an excessive size."""
    try:
        with _opened(path) as file:
            yield file
    except READ_ERRORS as error:
        what = "is damaged" if is_packed(path) else "cannot be read"
        raise DataError(f"'{path}' {what} ({_first_line(error)}). Check the file, or download it again.") from error


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    ending = path.suffix.lower()
    if ending not in PACKED:
        with path.open("rb") as file:
            yield file
        return
    with io.BufferedReader(cast(Any, _Bounded(path, _unpacking(path, ending))), 1 << 20) as bounded:
        yield cast(BinaryIO, bounded)


def _unpacking(path: Path, ending: str) -> Any:
    if ending == ".gz":
        return gzip.open(path, "rb")
    if ending == ".bz2":
        return bz2.open(path, "rb")
    if ending == ".zst":
        return pa.input_stream(path, compression="zstd")
    return _Member(path)


class _Member:
    """The one file of a zip archive."""

    def __init__(self, path: Path) -> None:
        self._archive = zipfile.ZipFile(path)
        try:
            self._file = self._archive.open(_member(path))
        except (RuntimeError, NotImplementedError) as error:  # encrypted, or an unknown compression
            self._archive.close()
            raise DataError(f"'{path}' cannot be unpacked ({error}). Unpack it first.") from error

    def read(self, size: int) -> bytes:
        return self._file.read(size)

    def close(self) -> None:
        self._file.close()
        self._archive.close()


class _Bounded(io.RawIOBase):
    """A stream that refuses to unpack to an excessive size."""

    def __init__(self, path: Path, inner: Any) -> None:
        self._path, self._inner, self._done = path, inner, 0
        self._limit = max(_FREE, _RATIO * path.stat().st_size)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._inner.read(len(buffer))
        self._done += len(data)
        if self._done > self._limit:
            raise DataError(
                f"'{self._path}' unpacks to more than {self._limit:,} bytes, {_RATIO:,} times its size. "
                "Unpack it first if that is right."
            )
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        if not self.closed:
            self._inner.close()
        super().close()


def _member(path: Path) -> zipfile.ZipInfo:
    """Returns the only file of a zip archive; refuses archives with none or several."""
    try:
        with zipfile.ZipFile(path) as archive:
            found = [
                entry for entry in archive.infolist()
                if not entry.is_dir() and not entry.filename.startswith("__MACOSX/")
            ]  # fmt: skip
    except READ_ERRORS as error:
        raise DataError(f"'{path}' is no zip archive ({_first_line(error)}). Check the file.") from error
    if len(found) != 1:
        names = ", ".join(entry.filename for entry in found[:5]) or "none"
        raise DataError(f"'{path}' holds {len(found):,} files ({names}). Allowed: one. Unpack it and name the files.")
    return found[0]


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]
