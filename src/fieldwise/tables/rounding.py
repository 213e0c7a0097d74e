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
        stores = store.of(embedding.layout.schema.names)
        self._tops = {width: [stores[j].top for j in fields] for width, fields in embedding.groups.items()}
        """The largest integer of each field, by width."""
        self._top_of: dict[int, Tensor] = {}
        """The same as tensors, of widths whose fields differ."""
        self._owners: dict[int, Tensor] = {}
        """The place of each row's field among those of its width."""
        for width, fields in embedding.groups.items():
            table = embedding.tables[str(width)]
            counts = torch.tensor([embedding.layout.schema.cardinalities[j] for j in fields])
            self._owners[width] = torch.arange(len(fields)).repeat_interleave(counts).to(table.device)
            self._scales[width] = torch.zeros(len(fields), width, device=table.device)
            tops = self._tops[width]
            if len(set(tops)) > 1:
                self._top_of[width] = torch.tensor(tops, dtype=table.dtype, device=table.device)[:, None]

    @torch.no_grad()
    def fit(self) -> None:
        """Fit the scales to the current tables; in place, because a captured step reads the same tensors."""
        for width, fields in self._embedding.groups.items():
            if not self._store.scales_rows(width):
                pairs = zip(fields, self._tops[width], strict=True)
                each = [fitted_scales(self._embedding.table(j), top) for j, top in pairs]
                self._scales[width].copy_(torch.stack(each))

    def __call__(self, found: Found, width: int) -> Found:
        """The same rows, rounded."""
        if not self.on:
            return found
        if self._store.scales_rows(width):
            scales = found.weights.detach().abs().amax(1, keepdim=True) / self._store.top
            return replace(found, weights=straight(found.weights, scales, self._store.top))
        owners = self._owners[width] if found.rows is None else self._owners[width][found.rows]
        top = self._top_of[width][owners] if width in self._top_of else self._tops[width][0]
        return replace(found, weights=straight(found.weights, self._scales[width][owners], top))


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
