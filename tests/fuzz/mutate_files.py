"""Mutations of tensors, tables, arrays and compressed text, and of the kind of file on disk."""

import gzip
import io
import json
import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from safetensors.numpy import load, save

from tests.fuzz.mutate_bytes import BYTES, Bytes
from tests.fuzz.mutate_values import NUMBERS, TEXTS, VALUES

_WRONG: Final = (np.nan, np.inf, -np.inf, 1e38, -1e38)


def header(data: bytes, draw: Random) -> bytes:
    """A safetensors header with other names, types, shapes and offsets."""
    length = struct.unpack("<Q", data[:8])[0]
    text = json.dumps(draw.choice(list(VALUES.values()))(json.loads(data[8 : 8 + length]), draw)).encode()
    return struct.pack("<Q", len(text)) + text + data[8 + length :]


def long_header(data: bytes, draw: Random) -> bytes:
    """A header with a wrong length, such as more than the file."""
    return struct.pack("<Q", draw.choice((2**63, 2**40, len(data), 99_999_999, 0))) + data[8:]


def wrong_weights(data: bytes, draw: Random) -> bytes:
    """NaN, infinite or huge numbers in one tensor."""
    tensors = {name: array.copy() for name, array in sorted(load(data).items())}
    array = tensors[draw.choice([name for name, a in tensors.items() if a.size and a.dtype.kind == "f"])]
    array[...] = draw.choice(_WRONG)
    return save(tensors)


def other_tensors(data: bytes, draw: Random) -> bytes:
    """A tensor of another shape, type or name, or an extra or missing tensor."""
    tensors = dict(sorted(load(data).items()))  # safetensors returns them in any order
    name = draw.choice(list(tensors))
    array = tensors.pop(name)
    change = draw.choice(("lose", "rename", "type", "shape", "grow", "more"))
    if change == "rename":
        tensors[draw.choice(TEXTS)] = array
    elif change == "type":
        tensors[name] = array.astype(draw.choice((np.float16, np.float64, np.int64, np.bool_)))
    elif change == "shape":
        tensors[name] = array.reshape(1, *array.shape)
    elif change == "grow":
        tensors[name] = np.zeros((*array.shape[:-1], 1 + (array.shape or (1,))[-1]), array.dtype)
    elif change == "more":
        tensors |= {name: array, "more": array}
    return save(tensors)


def other_type(data: bytes, draw: Random) -> bytes:
    """A Parquet column of an unexpected type."""
    table = pq.read_table(io.BytesIO(data), use_threads=False)
    rows, name = table.num_rows, draw.choice(table.column_names)
    column: Any = draw.choice(
        (
            pa.array([[i] for i in range(rows)]),
            pa.array([[[i], []] for i in range(rows)]),
            pa.array([{"a": i, "b": str(i)} for i in range(rows)]),
            pa.array([[{"a": i}] for i in range(rows)]),
            pa.array([str(i).encode() + b"\xff" for i in range(rows)], pa.binary()),
            pa.array([b"%16d" % i for i in range(rows)], pa.binary(16)),
            pa.nulls(rows),
            pa.array([None] * rows, pa.string()),
            pa.array([i % 2 == 0 for i in range(rows)]),
            pa.array([float("nan")] * rows),
            pa.array(range(rows), pa.decimal128(38, 10)),
            pa.array(range(rows), pa.time64("ns")),
            pa.array(range(rows), pa.duration("s")),
            pa.array([2**64 - 1] * rows, pa.uint64()),
            pa.array([draw.choice(TEXTS) for _ in range(rows)]),
            pa.array([[("k", i)] for i in range(rows)], pa.map_(pa.string(), pa.int64())),
        )
    )
    return _parquet(table.set_column(table.column_names.index(name), name, column))


def other_columns(data: bytes, draw: Random) -> bytes:
    """A missing, renamed, repeated, extra or null column; or missing or repeated rows."""
    table = pq.read_table(io.BytesIO(data), use_threads=False)
    name, names = draw.choice(table.column_names), table.column_names
    strange = pa.array([{"a": {"b": [i]}} for i in range(table.num_rows)])
    return _parquet(
        draw.choice(
            (
                lambda: table.drop_columns([name]),
                lambda: table.rename_columns([draw.choice(TEXTS) if n == name else n for n in names]),
                lambda: table.append_column(name, table[name]),
                lambda: table.append_column("strange", strange),
                lambda: table.slice(0, draw.choice((0, 1))),
                lambda: pa.concat_tables([table, table]),
                lambda: table.set_column(names.index(name), name, pa.nulls(table.num_rows, table[name].type)),
            )
        )()
    )


def unfolding(data: bytes, draw: Random) -> bytes:
    """A small Parquet file of equal rows, whose long values take gigabytes in memory."""
    table = pq.read_table(io.BytesIO(data), use_threads=False)
    name = draw.choice(table.column_names)
    rows = draw.choice((30_000, 60_000))
    long = pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), pa.array(["x" * 100_000]))
    zeros = pa.array(np.zeros(rows, np.int64))
    return _parquet(pa.table({n: long if n == name else zeros for n in table.column_names}))


def _parquet(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, store_schema=False)
    return sink.getvalue()


def array_header(data: bytes, draw: Random) -> bytes:
    """A .npy header of another type, shape or order."""
    array = np.load(io.BytesIO(data))
    fields = {"descr": array.dtype.str, "fortran_order": False, "shape": array.shape}
    key = draw.choice(list(fields))
    fields[key] = {
        "descr": draw.choice(("|O", "<f8", ">i4", "|V4", "<U1000000", "<m8[s]", [("a", "<i4")], "x")),
        "fortran_order": True,
        "shape": draw.choice(((2**40, 4), (-1,), (), (0,), array.shape[::-1], (*array.shape, 1), (1.5,), "x")),
    }[key]
    text = repr(fields).encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text) + 1) + text + b"\n" + data[-array.nbytes :]


def array_values(data: bytes, draw: Random) -> bytes:
    """A .npy file with an invalid id or label."""
    array = np.load(io.BytesIO(data)).copy()
    info = np.iinfo(array.dtype)
    new = draw.choice((info.min, info.max, 2, 1000))
    array.flat[draw.randrange(array.size)] = min(new, info.max)
    sink = io.BytesIO()
    np.save(sink, array)
    return sink.getvalue()


def damaged_gzip(data: bytes, draw: Random) -> bytes:
    """Gzip that is damaged or truncated in the middle."""
    text = gzip.decompress(data) * 40
    whole = bytearray(gzip.compress(text, 1, mtime=0))
    middle = len(whole) // 2
    if draw.random() < 0.5:
        return bytes(whole[:middle])
    whole[middle : middle + 20] = draw.randbytes(20)
    return bytes(whole)


def cells(data: bytes, draw: Random) -> bytes:
    """Text tables with unusual cells, lines and headers."""
    lines = data.split(b"\n")
    mark = b"\t" if b"\t" in lines[0] else b","
    place = draw.randrange(len(lines))
    parts = lines[place].split(mark)
    new = draw.choice((*TEXTS, *map(str, NUMBERS))).encode("utf-8", "surrogatepass")
    parts[draw.randrange(len(parts))] = draw.choice((new, b'"' + new, b'"' + new.replace(b'"', b'""') + b'"'))
    lines[place] = mark.join(draw.choice((parts, parts[:-1], [*parts, b"more"])))
    return b"\n".join(lines)


SAFETENSORS: Final[dict[str, Bytes]] = {
    **BYTES, "header": header, "long-header": long_header, "wrong-weights": wrong_weights,
    "other-tensors": other_tensors,
}  # fmt: skip
PARQUET: Final[dict[str, Bytes]] = {
    **BYTES, "other-type": other_type, "other-columns": other_columns, "unfolding": unfolding,
}  # fmt: skip
NPY: Final[dict[str, Bytes]] = {**BYTES, "header": array_header, "values": array_values}
TEXT: Final[dict[str, Bytes]] = {**BYTES, "cells": cells}
GZIP: Final[dict[str, Bytes]] = {
    **BYTES, "damaged": damaged_gzip, "cells": lambda data, draw: gzip.compress(cells(gzip.decompress(data), draw)),
}  # fmt: skip


def endless(path: Path, draw: Random) -> None:
    """A link to an endless device."""
    path.unlink()
    path.symlink_to("/dev/zero")


def pipe(path: Path, draw: Random) -> None:
    """A pipe without a writer."""
    path.unlink()
    os.mkfifo(path)


def missing(path: Path, draw: Random) -> None:
    """A missing file."""
    path.unlink()


def folder(path: Path, draw: Random) -> None:
    """A folder instead of the file."""
    path.unlink()
    path.mkdir()


def nowhere(path: Path, draw: Random) -> None:
    """A link to nothing, or to itself."""
    path.unlink()
    path.symlink_to(draw.choice(("nothing", path.name)))


def large(path: Path, draw: Random) -> None:
    """A sparse file of many gigabytes."""
    with path.open("r+b") as file:
        file.truncate(2**34)


def neighbor(path: Path, draw: Random) -> None:
    """The content of another file in the folder."""
    others = [p for p in sorted(path.parent.iterdir()) if p.is_file() and p != path]
    if others:
        shutil.copy(draw.choice(others), path)


DISK: Final[dict[str, Callable[[Path, Random], None]]] = {
    "endless": endless, "pipe": pipe, "missing": missing, "folder": folder, "nowhere": nowhere, "large": large,
    "neighbor": neighbor,
}  # fmt: skip
"""Mutations of the kind of file on disk."""
PLAIN: Final = ("missing", "folder", "nowhere", "neighbor")
"""Those for files that the user names, because a user may pass a pipe."""
