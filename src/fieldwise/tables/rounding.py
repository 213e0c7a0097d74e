"""Rounding of the rows that a training reads, so that the model learns with the numbers that will be stored."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import Tensor

from fieldwise.core.store import Store
from fieldwise.tables.embedding import FieldEmbedding
from fieldwise.tables.lookup import Found
from fieldwise.tables.quantize import Grid, fitted_scales, straight


class RoundedRows:
    """Rounds found rows with straight-through gradients. Scales are those of the least error when last fitted."""

    def __init__(self, embedding: FieldEmbedding, store: Store) -> None:
        self._embedding, self._store = embedding, store
        self.on = True
        """Whether rows are rounded; if not, they are passed on as they are."""
        stores = store.of(embedding.layout.schema.names)
        self._tops = {width: [stores[j].top for j in fields] for width, fields in embedding.groups.items()}
        """The largest integer of each field, by width."""
        self._grids: dict[int, Grid] = {}
        """The grid of each field, by width."""
        self._whole: dict[int, Grid] = {}
        """The same for each row, of tables that are read as a whole."""
        self._all: Grid | None = None
        """The same for all numbers, of tables that are read together."""
        self._owners: dict[int, Tensor] = {}
        """The place of each row's field among those of its width."""
        for width, fields in embedding.groups.items():
            table = embedding.tables[str(width)]
            counts = torch.tensor([embedding.layout.schema.cardinalities[j] for j in fields])
            self._owners[width] = torch.arange(len(fields)).repeat_interleave(counts).to(table.device)
            tops = self._tops[width]
            differ = torch.tensor(tops, dtype=table.dtype, device=table.device)[:, None] if len(set(tops)) > 1 else None
            self._grids[width] = Grid.of(table.new_zeros(len(fields), width), tops[0] if differ is None else differ)

    @torch.no_grad()
    def fit(self) -> None:
        """Fit the scales to the current tables; in place, because a captured step reads the same tensors."""
        for width, fields in self._embedding.groups.items():
            if not self._store.scales_rows(width):
                pairs = zip(fields, self._tops[width], strict=True)
                each = [fitted_scales(self._embedding.table(j), top) for j, top in pairs]
                self._grids[width].fill(torch.stack(each))
                if width in self._whole:
                    self._whole[width].copy_(self._grids[width].at(self._owners[width]))
        self._all = None

    def __call__(self, found: Found, width: int) -> Found:
        """The same rows, rounded."""
        if not self.on:
            return found
        return replace(found, weights=straight(found.weights, self._grid_of(found.weights, width, found.rows)))

    def of_all(self, weights: Tensor) -> Tensor:
        """The numbers of all tables, one after the other, rounded."""
        if not self.on:
            return weights
        if self._all is None or any(map(self._store.scales_rows, self._embedding.groups)):
            parts = weights.split([table.numel() for table in self._embedding.tables.values()])
            tables = [(part.view(-1, width), width) for part, width in zip(parts, self._embedding.groups, strict=True)]
            self._all = Grid.flat([(self._grid_of(table, width), table.shape) for table, width in tables])
        return straight(weights, self._all)

    def _grid_of(self, weights: Tensor, width: int, rows: Tensor | None = None) -> Grid:
        """The grid of some rows of the table of one width, or of all."""
        if self._store.scales_rows(width):
            return Grid.of(weights.detach().abs().amax(1, keepdim=True) / self._store.top, self._store.top)
        if rows is not None:
            return self._grids[width].at(self._owners[width][rows])
        if width not in self._whole:
            self._whole[width] = self._grids[width].at(self._owners[width])
        return self._whole[width]


@contextmanager
def rounding(embeddings: list[FieldEmbedding], store: Store) -> Iterator[list[RoundedRows]]:
    """Rounds all rows that embeddings read within the block."""
    rounded = [RoundedRows(embedding, store) for embedding in embeddings]
    try:
        for embedding, rows in zip(embeddings, rounded, strict=True):
            embedding.rounding = rows
        yield rounded
    finally:
        for embedding in embeddings:
            embedding.rounding = None


@contextmanager
def rounding_now(rounded: Sequence[RoundedRows]) -> Iterator[None]:
    """A block in which rows are rounded as they would be stored now; a training fits the scales again after it."""
    before = [rows.on for rows in rounded]
    try:
        for rows in rounded:
            rows.fit()
            rows.on = True
        yield
    finally:
        for rows, on in zip(rounded, before, strict=True):
            rows.on = on
