"""Rounding of the rows that a training reads, so that the model learns with the numbers that will be stored."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import Tensor

from fieldwise.core.store import Store
from fieldwise.tables.embedding import FieldEmbedding
from fieldwise.tables.lookup import Found
from fieldwise.tables.quantize import fitted_scales, straight


class RoundedRows:
    """Rounds found rows with straight-through gradients. Scales are those of the least error when last fitted."""

    def __init__(self, embedding: FieldEmbedding, store: Store) -> None:
        self._embedding, self._store = embedding, store
        self.on = True
        """Whether rows are rounded; if not, they are passed on as they are."""
        self._scales: dict[int, Tensor] = {}
        self._owners: dict[int, Tensor] = {}
        """The place of each row's field among those of its width."""
        for width, fields in embedding.groups.items():
            table = embedding.tables[str(width)]
            counts = torch.tensor([embedding.layout.schema.cardinalities[j] for j in fields])
            self._owners[width] = torch.arange(len(fields)).repeat_interleave(counts).to(table.device)
            self._scales[width] = torch.zeros(len(fields), width, device=table.device)

    @torch.no_grad()
    def fit(self) -> None:
        """Fit the scales to the current tables; in place, because a captured step reads the same tensors."""
        for width, fields in self._embedding.groups.items():
            if not self._store.scales_rows(width):
                each = [fitted_scales(self._embedding.table(j), self._store.top) for j in fields]
                self._scales[width].copy_(torch.stack(each))

    def __call__(self, found: Found, width: int) -> Found:
        """The same rows, rounded."""
        if not self.on:
            return found
        if self._store.scales_rows(width):
            scales = found.weights.detach().abs().amax(1, keepdim=True) / self._store.top
        else:
            owners = self._owners[width]
            scales = self._scales[width][owners if found.rows is None else owners[found.rows]]
        return replace(found, weights=straight(found.weights, scales, self._store.top))


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
