"""Tables in int4: the numbers of all fields in one row of bytes, read number by number.

One gather for all fields is quicker than one per width: unpacking takes several operations, and each would run once
per width. Every number takes half a byte, whatever the width of its field.
"""

from itertools import accumulate

import torch
from torch import Tensor, nn

from fieldwise.core.schema import PADDING, Layout
from fieldwise.core.store import Store
from fieldwise.tables.embedding import FieldEmbedding, means, places_of
from fieldwise.tables.quantize import ZERO, check_range, fitted_scales, packed, quantized


class PackedEmbedding(nn.Module):
    """The tables of all fields in int4.

    | buffer | contents |
    |---|---|
    | numbers | bytes (ceil(numbers / 2),) of all tables, field by field and row by row (`quantize.packed`) |
    | scales | float32, one per column; with one scale per row only those of tables of one column |
    | row_scales | float16 (rows,) of tables of several columns, with one scale per row |
    """

    def __init__(self, layout: Layout, store: Store) -> None:
        super().__init__()
        self.layout, self.store = layout, store
        self._numbers = [c * w for c, w in zip(layout.schema.cardinalities, layout.widths, strict=True)]
        self._live = [j for j, width in enumerate(layout.widths) if width]
        self._by_row = [j for j in self._live if store.scales_rows(layout.widths[j])]
        self.register_buffer("numbers", torch.empty((layout.params + 1) // 2, dtype=torch.uint8))
        columns = sum(layout.widths[j] for j in self._live if j not in self._by_row)
        self.register_buffer("scales", torch.empty(columns))
        if self._by_row:
            rows = sum(layout.schema.cardinalities[j] for j in self._by_row)
            self.register_buffer("row_scales", torch.empty(rows, dtype=torch.float16))
        self._pooled = any(layout.schema.lengths[j] > 1 for j in self._live)
        widths = set(layout.widths)
        self._same = widths.pop() if len(widths) == 1 and not self._pooled else 0
        """The width of every field, if they have one; else 0."""
        self._register_places()

    def _register_places(self) -> None:
        """Register, for each number that a row of ids reads, its place, its address, and those of its scale."""
        layout, lengths = self.layout, self.layout.schema.lengths
        starts, rows = [0, *accumulate(self._numbers)], self._row_starts()
        scales, found = self._scale_starts(), []
        places, owners = places_of(layout.schema, self._live)
        for place, owner in zip(places, owners, strict=True):
            j = self._live[owner]
            for k in range(layout.widths[j]):
                # a column's own scale, or 0 where a row's scale is read
                found.append((place, layout.widths[j], starts[j] + k, scales.get(j, -k) + k, rows.get(j, -1)))
        wide = torch.int64 if starts[-1] > torch.iinfo(torch.int32).max else torch.int32
        entries = torch.tensor(found, dtype=torch.int64).T
        for name, values in zip(("places", "strides", "bases", "scale_at", "row_at"), entries, strict=True):
            kind = wide if name in ("strides", "bases") else torch.int64
            self.register_buffer(name, values.to(kind).contiguous(), persistent=False)
        self._sizes = [(lengths[j], layout.widths[j]) for j in self._live]

    def _row_starts(self) -> dict[int, int]:
        """The first row of each field in `row_scales`."""
        counts = [self.layout.schema.cardinalities[j] for j in self._by_row]
        return dict(zip(self._by_row, [0, *accumulate(counts)], strict=False))

    def _scale_starts(self) -> dict[int, int]:
        """The first column of each field in `scales`."""
        fields = [j for j in self._live if j not in self._by_row]
        return dict(zip(fields, [0, *accumulate(self.layout.widths[j] for j in fields)], strict=False))

    def forward(self, ids: Tensor) -> Tensor:
        """The concatenated embedding (B, S) of ids (B, places)."""
        if self._same and not torch.compiler.is_exporting():
            own = ids.unsqueeze(2).expand(-1, -1, self._same).flatten(1)  # quicker than to index columns
        else:
            own = ids[:, self.get_buffer("places")]  # (B, numbers)
        if not self._pooled:
            return self._values(own)
        there, sizes = own != PADDING, [length * width for length, width in self._sizes]
        values = self._values(torch.where(there, own, 0)) * there
        fields = zip(values.split(sizes, 1), there.split(sizes, 1), self._sizes, strict=True)
        return torch.cat([_mean(*field) for field in fields], 1)

    def _values(self, ids: Tensor) -> Tensor:
        """The scaled numbers of ids (B, numbers)."""
        bases = self.get_buffer("bases")
        return self._read(ids.to(bases.dtype) * self.get_buffer("strides") + bases, self._scales(ids))

    def _read(self, numbers: Tensor, scales: Tensor) -> Tensor:
        """Numbers at these addresses, scaled."""
        stored = self.get_buffer("numbers")
        in_high = numbers >= len(stored)
        bytes_ = _taken(stored, torch.where(in_high, numbers - len(stored), numbers))
        return _halves(bytes_, in_high) * scales

    def _scales(self, ids: Tensor) -> Tensor:
        """The scale of each number: (numbers,), or (B, numbers) with scales of rows."""
        scales = self.get_buffer("scales")
        if not self._by_row:
            at = self.get_buffer("scale_at")
            return scales if len(at) == len(scales) else scales[at]
        row_at = self.get_buffer("row_at")
        rows = torch.where(row_at < 0, 0, ids + row_at)
        by_row = _taken(self.get_buffer("row_scales"), rows).float()
        if not len(scales):
            return by_row
        return torch.where(row_at < 0, scales[self.get_buffer("scale_at")], by_row)

    @torch.no_grad()
    def table(self, field: int) -> Tensor:
        """A float32 copy of the table of one field, (cardinality, width), for other libraries."""
        width, count = self.layout.widths[field], self.layout.schema.cardinalities[field]
        start, device = sum(self._numbers[:field]), self.get_buffer("numbers").device
        numbers = start + torch.arange(count * width, device=device).view(count, width)
        if field in self._by_row:
            first = self._row_starts()[field]
            scales = self.get_buffer("row_scales")[first : first + count, None].float()
        else:
            first = self._scale_starts()[field]
            scales = self.get_buffer("scales")[first : first + width]
        return self._read(numbers, scales)

    @torch.no_grad()
    def fill(self, trained: FieldEmbedding) -> None:
        """Store the tables of a trained embedding, which has at least the fields of this one."""
        top, parts = self.store.top, []
        for j in self._live:
            values = trained.table(j).detach()
            if j in self._by_row:
                first = self._row_starts()[j]
                scales = self.get_buffer("row_scales")[first : first + len(values), None]
                scales.copy_(fitted_scales(values, top, dim=1)[:, None])
            else:
                first = self._scale_starts()[j]
                scales = self.get_buffer("scales")[first : first + values.shape[1]]
                scales.copy_(fitted_scales(values, top))
            parts.append(quantized(values, scales.float(), top).flatten())
        self.get_buffer("numbers").copy_(packed(torch.cat(parts)))
        check_range(self, self.store)


def _taken(stored: Tensor, places: Tensor) -> Tensor:
    """Single numbers of stored (N,)."""
    if torch.compiler.is_exporting():  # ONNX Runtime's lookup of rows is slow for rows of one number
        return stored.gather(0, places.long().flatten()).view(places.shape)
    return stored.index_select(0, places.flatten()).view(places.shape)


def _halves(bytes_: Tensor, in_high: Tensor) -> Tensor:
    """The number in the high or the low half of each byte."""
    if torch.compiler.is_exporting():  # ONNX lacks shifts and is slow at masks, so floats are split
        floats = bytes_.float()
        high = (floats / 16).floor()
        return torch.where(in_high, high, floats - 16 * high) - ZERO
    shift = in_high.view(torch.uint8) << 2
    return ((bytes_ >> shift) & 15).view(torch.int8) - ZERO


def _mean(values: Tensor, there: Tensor, size: tuple[int, int]) -> Tensor:
    """The mean of a field over its places, (B, length * width) to (B, width)."""
    length, width = size
    if length == 1:
        return values
    return means(values.unflatten(1, (length, width)), there.unflatten(1, (length, width))[:, :, 0], length).flatten(1)
