"""Rows with tiers, read as rows without: the ids of a column's tiers become one id."""

from itertools import accumulate
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fieldwise.core.schema import UNKNOWN, Schema
from fieldwise.data.sharded import ShardedArray

SMALL: Final = 2**28
"""Bytes up to which joined ids are kept in memory."""


class JoinedIds:
    """Ids (rows, places) of `schema.joined`, computed when rows are read: by a slice, row numbers or a mask.

    A value has an id in one tier only. The ids of a column are those of its first tier, then those of the next ones.
    """

    dtype = np.dtype(np.int32)

    def __init__(self, ids: NDArray[np.int32] | ShardedArray, schema: Schema) -> None:
        """Takes the ids of a schema with tiers."""
        self._ids = ids
        first = dict(zip(schema.names, accumulate(schema.lengths, initial=0), strict=False))
        length, known = (dict(zip(schema.names, of, strict=True)) for of in (schema.lengths, schema.cardinalities))
        places, before, self._starts = list[int](), list[int](), list[int]()
        for names in schema.tiers.values():
            own = [place for name in names for place in range(first[name], first[name] + length[name])]
            tiers = len(names) > 1
            self._starts += [len(places)] if tiers else range(len(places), len(places) + len(own))
            ids_before = accumulate((known[name] - 1 for name in names), initial=0)
            before += [count for count, _ in zip(ids_before, own, strict=False)] if tiers else [0] * len(own)
            places += own
        self._places, self._before = np.asarray(places), np.asarray(before, np.int32)
        self.shape = (len(ids), len(self._starts))

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def nbytes(self) -> int:
        """Bytes of all rows."""
        return self.shape[0] * self.shape[1] * self.dtype.itemsize

    def __getitem__(self, rows: Any) -> NDArray[np.int32]:
        ids = np.asarray(self._ids[rows])[:, self._places]
        ids = np.where(ids > UNKNOWN, ids + self._before, ids)  # padding stays
        return np.maximum.reduceat(ids, self._starts, axis=1)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        if copy is False:
            raise ValueError("ids that are computed cannot become an array without a copy")
        found = self[:]
        return found if dtype is None else found.astype(dtype, copy=False)


def joined(ids: NDArray[np.int32] | ShardedArray | JoinedIds, schema: Schema) -> NDArray[np.int32] | JoinedIds:
    """The ids of `schema.joined`: an array, or computed when they are read if that were large."""
    assert not isinstance(ids, JoinedIds), "joined ids have no tiers"
    found = JoinedIds(ids, schema)
    return np.asarray(found) if found.nbytes <= SMALL else found
