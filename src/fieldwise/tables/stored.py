"""Tables as they are stored: float16, int8 or packed int4, read without a float32 copy.

Rows are gathered as integers and scaled after the gather. This order works in eager mode, AOTInductor and ONNX Runtime;
a cast or DequantizeLinear before the gather converts the whole table at load or at every call.
"""

from typing import Final

import torch
from torch import Tensor
from torch.nn import functional

from fieldwise.core.errors import RunError
from fieldwise.core.schema import Layout
from fieldwise.core.store import Store
from fieldwise.tables.embedding import FieldEmbedding, FieldLookup
from fieldwise.tables.quantize import ZERO, fitted_scales, packed, quantized

_TYPES: Final = {"float32": torch.float32, "float16": torch.float16, "int8": torch.int8, "int4": torch.uint8}
_CHUNK: Final = 2**20
"""Rows converted at a time, which bounds the memory for float32 values."""


class StoredEmbedding(FieldLookup):
    """The tables of all fields in a store. Buffers, because integers cannot be parameters.

    | buffer | contents |
    |---|---|
    | table_W | (rows, W); for int4 two columns per byte, (rows, W // 2) (`quantize.packed`) |
    | odd_W | the last column of an odd width in int4, two rows per byte, (ceil(rows / 2), 1) |
    | scales_W | float32 (fields, W), or float16 (rows,) with one scale per row |
    """

    def __init__(self, layout: Layout, store: Store) -> None:
        super().__init__(layout)
        self.store = store
        for width, fields in self.groups.items():
            rows = sum(layout.schema.cardinalities[j] for j in fields)
            table = width // 2 if store.kind == "int4" else width
            if table:
                self.register_buffer(f"table_{width}", torch.empty(rows, table, dtype=_TYPES[store.kind]))
            if store.kind == "int4":
                if width % 2:
                    self.register_buffer(f"odd_{width}", torch.empty((rows + 1) // 2, 1, dtype=torch.uint8))
                high = torch.cat([torch.ones(width // 2), torch.full((width // 2,), 1 / 16)])
                self.register_buffer(f"high_{width}", high, persistent=False)
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

    def _scaled(self, rows: Tensor, width: int, scales: Tensor | None) -> Tensor:
        """Rows in float32; scales (n, width) are those of the places, (R,) those of all rows."""
        if scales is None:
            return functional.embedding(rows, self.get_buffer(f"table_{width}")).float()
        if self.store.scales_rows(width):
            scales = scales[rows.long()].float().unsqueeze(2)  # (B, n, 1)
        if self.store.kind == "int8":
            return functional.embedding(rows, self.get_buffer(f"table_{width}")).float() * scales
        return self._unpacked(rows, width, scales)

    def _unpacked(self, rows: Tensor, width: int, scales: Tensor) -> Tensor:
        """Rows of packed integers, scaled; without shifts, which ONNX lacks for most types."""
        parts, paired = [], width // 2 * 2
        if paired:
            both = functional.embedding(rows, self.get_buffer(f"table_{width}"))  # (B, n, width // 2)
            own = scales if scales.shape[-1] == 1 else scales[..., :paired]
            numbers = torch.cat([both & 15, both & 0xF0], 2).float()
            parts.append(numbers * (own * self.get_buffer(f"high_{width}")) - ZERO * own)
        if width % 2:
            odd = self.get_buffer(f"odd_{width}")
            in_high = rows >= odd.shape[0]
            byte = functional.embedding(torch.where(in_high, rows - odd.shape[0], rows), odd)  # (B, n, 1)
            number = torch.where(in_high.unsqueeze(2), (byte & 0xF0).float() / 16, (byte & 15).float())
            parts.append((number - ZERO) * scales[..., -1:])
        return torch.cat(parts, 2) if len(parts) > 1 else parts[0]

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
        for name, buffer in self.named_buffers():
            if buffer.is_floating_point() and not buffer.isfinite().all():
                raise RunError(
                    f"The tables hold numbers that '{self.store}' cannot ({name}: beyond the range of float16). "
                    "Store them as int8 or float32."
                )

    def _fill_integers(self, source: Tensor, width: int) -> None:
        numbers = torch.empty(source.shape, dtype=torch.int8, device=source.device)
        scales, by_row, top = self.get_buffer(f"scales_{width}"), self.store.scales_rows(width), self.store.top
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
        parts = [numbers] if self.store.kind == "int8" else packed(numbers)
        for name, part in zip(("table", "odd"), parts, strict=False):
            if part.numel():
                self.get_buffer(f"{name}_{width}").copy_(part)
