"""Shards of a dataset: folders of arrays with some rows of every split, written by one process each."""

import hashlib
import io
import json
import os
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Final, Self

import numpy as np
from numpy.typing import NDArray

from fieldwise.core.plain_files import check_regular
from fieldwise.core.schema import Schema
from fieldwise.data.sharded import ShardedArray
from fieldwise.data.split import SPLITS

PARTS: Final = ("ids", "labels")
_TYPES: Final[dict[str, np.dtype[Any]]] = {"ids": np.dtype(np.int32), "labels": np.dtype(np.uint8)}
_READ: Final = 1 << 20
"""Bytes that are read together."""


@dataclass
class Counts:
    """Counts of the rows of one split: clicks, and unknown, null and unparsed values per field."""

    fields: int
    rows: int = 0
    clicks: int = 0
    unknown: NDArray[np.int64] = field(init=False)
    nulls: NDArray[np.int64] = field(init=False)

    def __post_init__(self) -> None:
        self.unknown = np.zeros(self.fields, np.int64)
        self.nulls = np.zeros(self.fields, np.int64)

    @classmethod
    def of(
        cls,
        labels: NDArray[np.uint8],
        unknown: Sequence[NDArray[np.bool_]],
        nulls: Sequence[NDArray[np.bool_]],
        chosen: NDArray[np.bool_],
    ) -> Self:
        """Counts the chosen rows; the masks are one per field."""
        found = cls(len(unknown), int(np.count_nonzero(chosen)), int(np.count_nonzero(labels[chosen])))
        found.unknown[:] = [np.count_nonzero(mask & chosen) for mask in unknown]
        found.nulls[:] = [np.count_nonzero(mask & chosen) for mask in nulls]
        return found

    def join(self, other: "Counts") -> None:
        """Adds the counts of other rows."""
        self.rows += other.rows
        self.clicks += other.clicks
        self.unknown += other.unknown
        self.nulls += other.nulls

    def to_json(self) -> dict[str, Any]:
        """Returns the counts as JSON values."""
        return {"clicks": self.clicks, "unknown": self.unknown.tolist(), "nulls": self.nulls.tolist()}


@dataclass(frozen=True)
class Shard:
    """A folder with arrays of each split that has rows in it, and how many it has of each."""

    folder: Path
    rows: dict[str, int]

    def array(self, split: str, part: str) -> NDArray[Any]:
        """Maps an array; raises what NumPy raises if the file is damaged."""
        path = self.folder / f"{split}.{part}.npy"
        check_regular(path)
        # mode "c": pages stay shared and clean, and torch wraps them without a warning
        found: NDArray[Any] = np.load(path, mmap_mode="c", allow_pickle=False)
        return found


def folder_of(dataset: Path, index: int, count: int) -> Path:
    """Returns the folder of a shard: that of the dataset itself if there is only one."""
    return dataset if count == 1 else dataset / f"shard-{index:05d}"


def arrays(shards: Sequence[Shard], split: str, part: str) -> list[NDArray[Any]]:
    """Maps the arrays of a split, of the shards that have rows of it."""
    return [shard.array(split, part) for shard in shards if shard.rows[split]]


def as_one(found: Sequence[NDArray[Any]]) -> NDArray[Any] | ShardedArray:
    """Returns arrays as one: the array itself if there is only one."""
    return found[0] if len(found) == 1 else ShardedArray(found)


def fingerprint(shards: Sequence[Shard], schema: Schema) -> str:
    """Returns a digest of the fields and of the rows of all splits; the same however the rows lie in shards."""
    digest = hashlib.sha256(json.dumps(schema.to_json()).encode())
    for name in SPLITS:
        for part in PARTS:
            digest.update(_digest(shards, name, part, schema.places))
    return digest.hexdigest()[:16]


def _digest(shards: Sequence[Shard], split: str, part: str, places: int) -> bytes:
    """Returns the digest of the file that would hold the rows of all shards."""
    header = _header(part, sum(shard.rows[split] for shard in shards), places)
    digest = hashlib.sha256(header)
    for shard in shards:
        if shard.rows[split]:
            with (shard.folder / f"{split}.{part}.npy").open("rb") as file:
                file.seek(len(header))
                while chunk := file.read(_READ):
                    digest.update(chunk)
    return digest.digest()


def _header(part: str, rows: int, places: int) -> bytes:
    """Returns the start of an array file; as long for any number of rows, since NumPy leaves room for them to grow."""
    file = io.BytesIO()
    shape = (rows, places) if part == "ids" else (rows,)
    descr = np.lib.format.dtype_to_descr(_TYPES[part])
    np.lib.format.write_array_header_1_0(file, {"descr": descr, "fortran_order": False, "shape": shape})
    return file.getvalue()


class Writer:
    """Writes a new shard, batch by batch; leaving the context flushes it to disk."""

    def __init__(self, parent: Path, places: int) -> None:
        """Makes the shard's folder in `parent`, with a name that no other process uses."""
        self._folder, self._places = parent / uuid.uuid4().hex, places
        self._folder.mkdir()
        self._files: dict[tuple[str, str], BinaryIO] = {}
        self.shard = Shard(self._folder, dict.fromkeys(SPLITS, 0))

    def add(self, split: str, ids: NDArray[np.int32], labels: NDArray[np.uint8]) -> None:
        """Appends rows to a split."""
        if not len(labels):
            return
        self.shard.rows[split] += len(labels)
        for part, array in zip(PARTS, (ids, labels), strict=True):
            self._file(split, part).write(np.ascontiguousarray(array, _TYPES[part]).data)

    def _file(self, split: str, part: str) -> BinaryIO:
        """Opens an array on first use; a stream, since a full disk kills a process that writes mapped pages."""
        if (split, part) not in self._files:
            file = self._files[split, part] = (self._folder / f"{split}.{part}.npy").open("wb")
            file.write(_header(part, 0, self._places))
        return self._files[split, part]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        for (split, part), file in self._files.items():
            if kind is None:
                file.seek(0)
                file.write(_header(part, self.shard.rows[split], self._places))
                file.flush()
                os.fsync(file.fileno())
            with suppress(OSError):  # after an error: the disk may be full
                file.close()
