"""Finds values in a vocabulary, which is hashed once and not at every call as by Arrow."""

from functools import cached_property
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

_SMALL: Final = 4_096
"""Arrow hashes the vocabulary at every call, which is faster for so few known values and two more per row."""
_CHUNK: Final = 2**16
"""Known texts that are Python objects at a time."""


class Positions:
    """The positions of known values, which are distinct."""

    def __init__(self, known: pa.Array) -> None:
        self._known = known

    def __reduce__(self) -> tuple[type["Positions"], tuple[pa.Array]]:
        return Positions, (self._known,)  # the hash of a text differs between processes

    def __call__(self, column: pa.Array) -> NDArray[np.int32]:
        """Returns the position of each value; -1 for unknown values and null."""
        known, alike = self._known, column.type == self._known.type
        few = _SMALL + 2 * len(column) < len(known)
        if few and alike and pa.types.is_string(known.type) and self._texts is not None:
            encoded = column.dictionary_encode()
            return _at(self._of_texts(encoded.dictionary, *self._texts), encoded.indices)
        if few and alike and pa.types.is_int64(known.type):
            return self._of_integers(column)
        return positions(column, known)

    @cached_property
    def _texts(self) -> tuple[NDArray[np.int64], NDArray[np.int64]] | None:
        """Hashes of the known texts in ascending order, and their positions; None if two texts share a hash."""
        chunks = [_hashes(self._known.slice(start, _CHUNK)) for start in range(0, len(self._known), _CHUNK)]
        hashes = np.concatenate([np.empty(0, np.int64), *chunks])
        order = np.argsort(hashes)
        ascending = hashes[order]
        return None if (ascending[1:] == ascending[:-1]).any() else (ascending, order)

    def _of_texts(self, texts: pa.Array, hashes: NDArray[np.int64], order: NDArray[np.int64]) -> NDArray[np.int32]:
        own = _hashes(texts)
        if not len(hashes):
            return np.full(len(own), -1, np.int32)
        places = np.searchsorted(hashes, own).clip(max=len(hashes) - 1)
        found = np.where(hashes[places] == own, order[places], -1).astype(np.int32)
        hits = np.flatnonzero(found >= 0)
        same = pc.equal(self._known.take(pa.array(found[hits])), texts.take(pa.array(hits)))
        found[hits[~np.asarray(pc.fill_null(same, False))]] = -1  # another text with the same hash
        return found

    @cached_property
    def _integers(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The known integers in ascending order, and their positions."""
        valid = np.flatnonzero(self._known.is_valid())
        numbers = self._known.drop_null().to_numpy()
        order = np.argsort(numbers, kind="stable")
        return numbers[order], valid[order]

    def _of_integers(self, column: pa.Array) -> NDArray[np.int32]:
        ascending, order = self._integers
        if not len(ascending):
            return np.full(len(column), -1, np.int32)
        numbers = pc.fill_null(column, 0).to_numpy(zero_copy_only=False)
        places = np.searchsorted(ascending, numbers).clip(max=len(ascending) - 1)
        known = (ascending[places] == numbers) & np.asarray(column.is_valid())
        return np.where(known, order[places], -1).astype(np.int32)


def positions(column: pa.Array, known: pa.Array) -> NDArray[np.int32]:
    """Returns the position of each value of a column among known values; -1 for unknown values and null."""
    found: NDArray[np.int32] = pc.fill_null(pc.index_in(column, value_set=known, skip_nulls=True), -1).to_numpy(
        zero_copy_only=False
    )
    return found


def _hashes(texts: pa.Array) -> NDArray[np.int64]:
    return np.fromiter(map(hash, texts.to_pylist()), np.int64, len(texts))


def _at(found: NDArray[np.int32], indices: pa.Array) -> NDArray[np.int32]:
    """Returns the entries at indices; -1 at null."""
    places: NDArray[np.int32] = pc.fill_null(indices, len(found)).to_numpy(zero_copy_only=False)
    return np.append(found, np.int32(-1))[places]
