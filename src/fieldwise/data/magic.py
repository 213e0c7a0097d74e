"""Recognizes files that are no plain text, or no table, by their first bytes."""

import re
from typing import Final

_TABLES: Final = "Give a table: CSV, TSV, JSON Lines or Parquet"
_UTF16: Final = ("UTF-16 text", "Name its encoding: data.encoding = 'utf-16'")
_KINDS: Final = {
    rb"PK\x03\x04": ("a zip archive or an Excel workbook", "Name it .zip, or save the sheet as CSV"),
    rb"\x1f\x8b": ("compressed by gzip", "Give it a name that ends with .gz"),
    rb"BZh[1-9]1AY&SY": ("compressed by bzip2", "Give it a name that ends with .bz2"),
    rb"\x28\xb5\x2f\xfd": ("compressed by zstd", "Give it a name that ends with .zst"),
    rb"\xfd7zXZ\x00": ("compressed by xz", "Unpack it: unxz"),
    rb"7z\xbc\xaf": ("a 7z archive", "Unpack it"),
    rb"PAR1[\x00-\x1f]": ("Parquet", "Give it a name that ends with .parquet"),
    rb"ARROW1\x00": ("an Arrow file", "Write it as Parquet"),
    rb"SQLite format 3\x00": ("an SQLite database", "Write the table as CSV or Parquet"),
    rb"\x89PNG|\xff\xd8\xff|GIF8|%PDF-": ("a picture or a PDF", _TABLES),
    rb"(?i)\s*<(!doctype|html|\?xml)": ("a web page or XML", "Was the download an error page? " + _TABLES),
    rb"version https://git-lfs": ("a pointer of Git LFS", "Fetch the file itself: git lfs pull"),
    rb"\s*\[\s*\{": ("a JSON array", "Write one JSON object per line, in a file that ends with .jsonl"),
    rb"\s*\{\s*\"": ("JSON", "Write one object per line, in a file that ends with .jsonl"),
    rb"\xff\xfe": _UTF16,
    rb"\xfe\xff": _UTF16,
}
"""What files with these first bytes are, and what to do with them."""


def not_a_table(start: bytes) -> tuple[str, str] | None:
    """Returns what a file is and what to do, if its first bytes are not those of a table; None if they may be."""
    found = next((kind for pattern, kind in _KINDS.items() if re.match(pattern, start)), None)
    return found or (("binary", _TABLES) if b"\x00" in start else None)
