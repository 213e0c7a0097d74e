"""Tables as they are stored: float16, int8 or packed int4, read without a float32 copy.

Rows are gathered as integers and scaled after the gather. This order works in eager mode, AOTInductor and ONNX Runtime;
a cast or DequantizeLinear before the gather converts the whole table at load or at every call.
"""

from typing import Final

import torch
from torch import Tensor
from torch.nn import functional

from fieldwise.core.schema import Layout
from fieldwise.core.store import Store
from fieldwise.tables.embedding import FieldEmbedding, FieldLookup
from fieldwise.tables.packed import PackedEmbedding
from fieldwise.tables.quantize import check_range, fitted_scales, quantized

_TYPES: Final = {"float32": torch.float32, "float16": torch.float16, "int8": torch.int8}
_CHUNK: Final = 2**20
"""Rows converted at a time, which bounds the memory for float32 values."""


def stored_embedding(layout: Layout, store: Store) -> "StoredEmbedding | PackedEmbedding":
    """Tables of a layout in a store, not filled."""
    return PackedEmbedding(layout, store) if store.kind == "int4" else StoredEmbedding(layout, store)


class StoredEmbedding(FieldLookup):
    """The tables of all fields in float32, float16 or int8. Buffers, because integers cannot be parameters.

    | buffer | contents |
    |---|---|
    | table_W | (rows, W) |
    | scales_W | float32 (fields, W), or float16 (rows,) with one scale per row |
    """

    def __init__(self, layout: Layout, store: Store) -> None:
        super().__init__(layout)
        self.store = store
        for width, fields in self.groups.items():
            rows = sum(layout.schema.cardinalities[j] for j in fields)
            self.register_buffer(f"table_{width}", torch.empty(rows, width, dtype=_TYPES[store.kind]))
            if store.scales_rows(width):
                self.register_buffer(f"scales_{width}", torch.empty(rows, dtype=torch.float16))
            elif store.is_integer:
                self.register_buffer(f"scales_{width}", torch.empty(len(fields), width))

    def read(self, rows: Tensor, width: int) -> Tensor:
        """Rows of the stacked table of one width in float32, (B, n, width)."""
        scales = self.get_buffer(f"scales_{width}") if self.store.is_integer else None
        if scales is not None and not self.store.scales_rows(width) and self.is_pooled(width):
            scales = scales[self.get_buffer(f"owners_{width}")]  # (n, width)
        return self._scaled(rows, width, scales)

    def read_field(self, field: int, ids: Tensor) -> Tensor:
        """Rows of the table of one field in float32, at ids (B,): (B, width)."""
        width, rows = self.layout.widths[field], self._stacked[field]
        found = self.get_buffer(f"table_{width}")[rows].index_select(0, ids)
        if not self.store.is_integer:
            return found.float()
        scales = self.get_buffer(f"scales_{width}")
        if self.store.scales_rows(width):
            return found * scales[rows].index_select(0, ids).float().unsqueeze(1)
        return found * scales[self.groups[width].index(field)]

    def _scaled(self, rows: Tensor, width: int, scales: Tensor | None) -> Tensor:
        """Rows in float32; scales (n, width) are those of the places, (R,) those of all rows."""
        found = functional.embedding(rows, self.get_buffer(f"table_{width}"))
        if scales is None:
            return found.float()
        each = scales[rows.long()].float().unsqueeze(2) if self.store.scales_rows(width) else scales
        return found * each  # one operation that also converts: it is not slower than float32 in eager mode

    @torch.no_grad()
    def table(self, field: int) -> Tensor:
        """A float32 copy of the table of one field, (cardinality, width), for other libraries."""
        width, rows = self.layout.widths[field], self.layout.stacked_rows[field]
        scales = self.get_buffer(f"scales_{width}") if self.store.is_integer else None
        if scales is not None and not self.store.scales_rows(width):
            scales = scales[self.groups[width].index(field)]
        numbers = torch.arange(rows.start, rows.stop, device=next(self.buffers()).device)
        return self._scaled(numbers[:, None], width, scales)[:, 0]

    @torch.no_grad()
    def fill(self, trained: FieldEmbedding) -> None:
        """Store the tables of a trained embedding of the same layout."""
        for width in self.groups:
            source = trained.tables[str(width)].detach()
            if self.store.is_integer:
                self._fill_integers(source, width)
            else:
                self.get_buffer(f"table_{width}").copy_(source)
        check_range(self, self.store)

    def _fill_integers(self, source: Tensor, width: int) -> None:
        numbers, scales = self.get_buffer(f"table_{width}"), self.get_buffer(f"scales_{width}")
        by_row, top = self.store.scales_rows(width), self.store.top
        for place, j in enumerate(self.groups[width]):
            own = self.layout.stacked_rows[j]
            if not by_row:
                scales[place] = fitted_scales(source[own], top)
            for start in range(own.start, own.stop, _CHUNK):
                rows = slice(start, min(start + _CHUNK, own.stop))
                if by_row:
                    scales[rows] = fitted_scales(source[rows], top, dim=1)
                each = scales[rows].float()[:, None] if by_row else scales[place]
                numbers[rows] = quantized(source[rows], each, top)
