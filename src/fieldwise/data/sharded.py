"""Rows that lie in several memory-mapped arrays, indexed as one array."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


class ShardedArray:
    """Arrays one after another along their rows; indexing reads only the rows that it returns.

    Accepts what readers of a split use: a slice of rows, row numbers or a mask, each also with columns, and
    `np.asarray`, which loads all rows.
    """

    def __init__(self, shards: Sequence[NDArray[Any]]) -> None:
        """Takes one or more arrays of one type, equal in all dimensions but the first."""
        self.shards = tuple(shards)
        self._starts = np.cumsum([0, *(len(shard) for shard in self.shards)])
        self.dtype = self.shards[0].dtype
        self.shape: tuple[int, ...] = (int(self._starts[-1]), *self.shards[0].shape[1:])

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def nbytes(self) -> int:
        """Bytes of all rows."""
        return sum(shard.nbytes for shard in self.shards)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        if copy is False:
            raise ValueError("rows in several arrays cannot become one array without a copy")
        found = np.concatenate(self.shards)
        return found if dtype is None else found.astype(dtype, copy=False)

    def __getitem__(self, key: Any) -> NDArray[Any]:
        rows, *columns = key if isinstance(key, tuple) else (key,)
        if isinstance(rows, slice):
            start, stop, step = rows.indices(len(self))
            if step == 1:
                return self._between(start, stop, columns)
            rows = np.arange(start, stop, step)
        rows = np.asarray(rows)
        if rows.dtype == np.bool_:
            rows = np.flatnonzero(rows)
        found = self._taken(rows.ravel()).reshape(*rows.shape, *self.shape[1:])
        return found[(..., *columns)] if columns else found

    def _between(self, start: int, stop: int, columns: list[Any]) -> NDArray[Any]:
        """Returns consecutive rows; a view if they lie in one shard."""
        first, last = np.searchsorted(self._starts[1:-1], (start, stop - 1), side="right")
        parts = [
            self.shards[index][(slice(max(0, start - before), max(0, stop - before)), *columns)]
            for index, before in enumerate(self._starts.tolist())
            if first <= index <= max(first, last)
        ]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _taken(self, rows: NDArray[np.int64]) -> NDArray[Any]:
        """Returns the rows with these numbers, in their order."""
        if len(rows) and not -len(self) <= rows.min() <= rows.max() < len(self):
            raise IndexError(f"rows {rows.min()} to {rows.max()} of {len(self)}")
        rows = np.where(rows < 0, rows + len(self), rows)
        owners = np.searchsorted(self._starts[1:], rows, side="right")
        order = np.argsort(owners, kind="stable")
        ends = np.searchsorted(owners[order], np.arange(len(self.shards)), side="right").tolist()
        found = np.empty((len(rows), *self.shape[1:]), self.dtype)
        for index, (begin, end) in enumerate(zip([0, *ends], ends, strict=False)):
            if end > begin:
                places = order[begin:end]
                found[places] = self.shards[index][rows[places] - self._starts[index]]
        return found
