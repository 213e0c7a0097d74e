"""Tables as they are stored: float16, int8 or packed int4, read without a float32 copy.

Rows are gathered as integers and scaled after the gather. This order works in eager mode, AOTInductor and ONNX Runtime;
a cast or DequantizeLinear before the gather converts the whole table at load or at every call.
"""

from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional

from fieldwise.core.schema import Layout
from fieldwise.core.store import Store
from fieldwise.tables.embedding import FieldEmbedding, FieldLookup
from fieldwise.tables.packed import PackedEmbedding
from fieldwise.tables.quantize import check_range, fitted_scales, quantized

_TYPES: Final = {"float32": torch.float32, "float16": torch.float16, "int8": torch.int8}
_CHUNK: Final = 2**20
"""Rows converted at a time, which bounds the memory for float32 values."""


def stored_embedding(layout: Layout, store: Store) -> "StoredTables":
    """Tables of a layout in a store, not filled."""
    if store.int8:
        parts = store.parts(layout)
        if len(parts) > 1:
            return MixedEmbedding(layout, store)
        store = parts[0][0] if parts else Store("int4")
    return PackedEmbedding(layout, store) if store.kind == "int4" else StoredEmbedding(layout, store)


class MixedEmbedding(nn.Module):
    """The tables of some fields in int8, those of the others in int4: two embeddings, whose columns are put in order.

    Its buffers are those of `StoredEmbedding`, as `int8.table_W`, and of `PackedEmbedding`, as `int4.numbers`.
    """

    def __init__(self, layout: Layout, store: Store) -> None:
        super().__init__()
        self.layout, self.store = layout, store
        self._kinds: list[str] = []
        self._fields: dict[int, str] = {}
        """The part that each field with columns is in."""
        places: list[int] = []
        for own, part in store.parts(layout):
            self.add_module(own.kind, stored_embedding(part, own))
            self._kinds.append(own.kind)
            self._fields |= {j: own.kind for j, width in enumerate(part.widths) if width}
            places += [c for c, j in enumerate(layout.owners.tolist()) if self._fields.get(j) == own.kind]
        order = torch.tensor(sorted(range(layout.columns), key=places.__getitem__))
        self.register_buffer("order", order, persistent=False)

    def forward(self, ids: Tensor) -> Tensor:
        """The concatenated embedding (B, S) of ids (B, places)."""
        parts = [self.get_submodule(kind)(ids) for kind in self._kinds]
        return torch.cat(parts, 1).index_select(1, self.get_buffer("order"))

    def table(self, field: int) -> Tensor:
        """A float32 copy of the table of one field, (cardinality, width), for other libraries."""
        return self._part(self._fields[field]).table(field)

    def fill(self, trained: FieldEmbedding) -> None:
        """Store the tables of a trained embedding of the same layout."""
        for kind in self._kinds:
            self._part(kind).fill(trained)

    def _part(self, kind: str) -> "StoredEmbedding | PackedEmbedding":
        found = self.get_submodule(kind)
        assert isinstance(found, StoredEmbedding | PackedEmbedding)
        return found


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
        """Store the tables of a trained embedding, which has at least the fields of this one."""
        for width, fields in self.groups.items():
            for place, j in enumerate(fields):
                source = trained.table(j).detach()
                if self.store.is_integer:
                    self._fill_integers(source, width, place, self._stacked[j].start)
                else:
                    self.get_buffer(f"table_{width}")[self._stacked[j]] = source
        check_range(self, self.store)

    def _fill_integers(self, source: Tensor, width: int, place: int, first: int) -> None:
        """Store the table of one field, from row `first` on; `place` is its place among the fields of its width."""
        numbers, scales = self.get_buffer(f"table_{width}"), self.get_buffer(f"scales_{width}")
        by_row, top = self.store.scales_rows(width), self.store.top
        if not by_row:
            scales[place] = fitted_scales(source, top)
        for start in range(0, len(source), _CHUNK):
            values = source[start : start + _CHUNK]
            rows = slice(first + start, first + start + len(values))
            if by_row:
                scales[rows] = fitted_scales(values, top, dim=1)
            each = scales[rows].float()[:, None] if by_row else scales[place]
            numbers[rows] = quantized(values, each, top)


StoredTables = StoredEmbedding | PackedEmbedding | MixedEmbedding
"""The tables of a model as they are stored."""
