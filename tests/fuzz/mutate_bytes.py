"""Mutations of bytes, for files of any format."""

from collections.abc import Callable
from random import Random
from typing import Final

Bytes = Callable[[bytes, Random], bytes]
_TOKENS: Final = (
    b"\x00",
    b"\xff",
    b"\xef\xbb\xbf",
    b'"',
    b"'",
    b"[",
    b"]",
    b"{",
    b"}",
    b"\n",
    b"\r",
    b"1e999",
    b"-1",
    b"%s",
)


def flip(data: bytes, draw: Random) -> bytes:
    """Flips some bits."""
    found = bytearray(data)
    for _ in range(draw.choice((1, 1, 2, 8, 64)) if found else 0):
        found[draw.randrange(len(found))] ^= 1 << draw.randrange(8)
    return bytes(found)


def cut(data: bytes, draw: Random) -> bytes:
    """Truncates, sometimes to nothing."""
    return data[: draw.choice((0, draw.randrange(len(data) + 1), draw.randrange(len(data) + 1), max(0, len(data) - 1)))]


def insert(data: bytes, draw: Random) -> bytes:
    """Inserts bytes."""
    place = draw.randrange(len(data) + 1)
    new = draw.choice((draw.choice(_TOKENS), draw.randbytes(draw.randrange(1, 64))))
    return data[:place] + new + data[place:]


def repeat(data: bytes, draw: Random) -> bytes:
    """Repeats a chunk."""
    start, end = _chunk(data, draw)
    return data[:end] + data[start:end] + data[end:]


def remove(data: bytes, draw: Random) -> bytes:
    """Removes a chunk."""
    start, end = _chunk(data, draw)
    return data[:start] + data[end:]


def exchange(data: bytes, draw: Random) -> bytes:
    """Replaces a chunk by zeros or random bytes."""
    start, end = _chunk(data, draw)
    return data[:start] + draw.choice((bytes(end - start), draw.randbytes(end - start))) + data[end:]


def append(data: bytes, draw: Random) -> bytes:
    """Appends bytes."""
    return data + draw.choice((draw.randbytes(draw.randrange(1, 256)), data, b"\x00" * 512))


def _chunk(data: bytes, draw: Random) -> tuple[int, int]:
    start = draw.randrange(len(data) + 1)
    return start, min(len(data), start + draw.choice((1, 8, 64, 512)))


BYTES: Final[dict[str, Bytes]] = {
    "flip": flip, "cut": cut, "insert": insert, "repeat": repeat, "remove": remove, "exchange": exchange,
    "append": append,
}  # fmt: skip
