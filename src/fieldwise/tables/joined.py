"""The tables of tiers, read as one table per column of the data: a training step looks a value up once, not per tier.

The weights stay those of the tiers. Their numbers are put in the places of the joined tables at every step, and the
gradients back, so a step is that of the tiers but for the order of its sums.
"""

from typing import Any, Final

import torch
from torch import Tensor, nn

from fieldwise.core.schema import UNKNOWN, Layout
from fieldwise.tables.embedding import FieldEmbedding, FieldLookup, by_width

LANES: Final = 8
"""Padded tables have a multiple of so many columns: as many numbers as a CPU adds at once."""


class JoinedTables(FieldLookup):
    """Looks up ids of `schema.joined` in the tables of tiers, with their weights as they are now.

    A value has its row in its tier, with zeros where the tier lacks a column; `unknown` has that of the first tier.
    With `added`, for first-order weights, the rows of `unknown` of the other tiers are added, as a model with tiers
    does. With `padded`, all fields are padded with zeros to one width, and so in one table.
    """

    def __init__(self, tiers: FieldEmbedding, added: bool = False, padded: bool = False) -> None:
        super().__init__(joined_layout(tiers.layout, padded))
        self.tiers = tiers
        numbers, weights = _numbers(tiers, self.layout)
        self._sizes = [(len(own), width) for width, own in numbers.items()]
        flat = torch.cat([own.flatten() for own in numbers.values()])
        self.register_buffer("numbers", flat, persistent=False)
        back, lacking = _inverse(flat, weights)
        self.register_buffer("back", back, persistent=False)
        self.register_buffer("lacking", lacking, persistent=False)
        self._unknown = _UnknownRows(tiers.layout, self.layout) if added else None
        self._tables: dict[int, Tensor] = {}

    def forward(self, ids: Tensor) -> Tensor:
        """The concatenated vectors (B, S) of ids (B, places)."""
        weights = torch.cat([self.tiers.tables[str(width)].flatten() for width in self.tiers.groups])
        if self.tiers.rounding is not None:
            weights = self.tiers.rounding.of_all(weights)
        placed: Tensor = _Placed.apply(  # type: ignore[no-untyped-call]
            weights, self.get_buffer("numbers"), self.get_buffer("back"), self.get_buffer("lacking")
        )
        parts = placed.split([rows * width for rows, width in self._sizes])
        self._tables = {size[1]: part.view(size) for part, size in zip(parts, self._sizes, strict=True)}
        if self._unknown is not None:
            self._tables[1] = self._tables[1] + self._unknown(weights)
        return super().forward(ids)

    def read(self, rows: Tensor, width: int) -> Tensor:
        """Rows of the stacked table of one width, at row numbers (B, n): (B, n, width)."""
        return self._tables[width].index_select(0, rows.flatten().long()).view(*rows.shape, width)

    def read_field(self, field: int, ids: Tensor) -> Tensor:
        """Rows of the table of one field, at ids (B,): (B, width)."""
        return self._tables[self.layout.widths[field]][self._stacked[field]].index_select(0, ids)


class _UnknownRows(nn.Module):
    """First-order weights of `unknown` that are added to the values of other tiers of the same column."""

    def __init__(self, layout: Layout, joined: Layout) -> None:
        super().__init__()
        stacked, cardinalities = layout.stacked_rows, layout.schema.cardinalities
        others, counts = list[list[int]](), list[int]()
        for f, (_, own) in enumerate(layout.members):
            for j in own if joined.widths[f] else ():
                others.append([stacked[k].start + UNKNOWN for k in own if k != j and layout.widths[k]])
                counts.append(cardinalities[j] - (j != own[0]))
        most, zero = max(map(len, others)), layout.params
        rows = [[*each, *[zero] * (most - len(each))] for each in others]
        self.register_buffer("others", torch.tensor(rows, dtype=torch.int64), persistent=False)
        """For every tier, the rows of `unknown` of the others, filled up with a row of zero."""
        owners = torch.arange(len(others)).repeat_interleave(torch.tensor(counts))
        self.register_buffer("owners", owners, persistent=False)
        """The tier of each row of the joined table."""

    def forward(self, weights: Tensor) -> Tensor:
        """What is added to each row of the joined table, (R, 1); the weights are those of the tiers."""
        others = self.get_buffer("others")
        each = torch.cat([weights, weights.new_zeros(1)]).index_select(0, others.flatten())
        return each.view(others.shape).sum(1).index_select(0, self.get_buffer("owners")).unsqueeze(1)


class _Placed(torch.autograd.Function):
    """Weights at places; each has at most one, so gradients are gathered too."""

    @staticmethod
    def forward(ctx: Any, weights: Tensor, numbers: Tensor, back: Tensor, lacking: Tensor) -> Tensor:
        """(weights,) to (places,), with zero where a place has none."""
        ctx.back, ctx.lacking = back, lacking
        return torch.cat([weights, weights.new_zeros(1)]).index_select(0, numbers)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        """(places,) to (weights,), with zero where a weight has no place."""
        return grads[0].index_select(0, ctx.back).index_fill_(0, ctx.lacking, 0), None, None, None


def joined_layout(layout: Layout, padded: bool = False) -> Layout:
    """One field per column of the data, as wide as its vector, or as its widest tier where tiers share none.

    With `padded`, all fields with columns have the padded width of the widest.
    """
    if layout.shared is not None:
        found = layout.vectors
    else:
        found = Layout(layout.schema.joined, tuple(max(layout.widths[j] for j in own) for _, own in layout.members))
    most = padded_width(max(found.widths))
    return Layout(found.schema, tuple(most if width else 0 for width in found.widths)) if padded else found


def padded_width(widest: int) -> int:
    """The width that fields are padded to: that of the widest or a little more."""
    return -(-widest // LANES) * LANES


def _numbers(tiers: FieldEmbedding, joined: Layout) -> tuple[dict[int, Tensor], int]:
    """For each place of the joined tables, by width, its number among all weights of the tiers; and their count.

    The count itself stands where a place is zero.
    """
    layout, starts, weights = tiers.layout, dict[int, int](), 0
    for width in tiers.groups:
        starts[width] = weights
        weights += tiers.tables[str(width)].numel()
    cardinalities, of_columns = layout.schema.cardinalities, joined.schema.cardinalities
    rows = {width: sum(of_columns[f] for f in own) for width, own in by_width(joined).items()}
    found = {width: torch.full((count, width), weights) for width, count in rows.items()}
    stacked, places = layout.stacked_rows, joined.stacked_rows
    for f, (_, own) in enumerate(layout.members):
        at = places[f].start
        for j in own:
            skip = UNKNOWN if j == own[0] else UNKNOWN + 1
            count, width = cardinalities[j] - skip, layout.widths[j]
            if width:
                first = starts[width] + (stacked[j].start + skip) * width
                columns = torch.tensor(layout.shared[j] if layout.shared is not None else range(width))
                numbers = torch.arange(first, first + count * width).view(count, width)
                found[joined.widths[f]][at : at + count, columns] = numbers
            at += count
    return found, weights


def _inverse(numbers: Tensor, weights: int) -> tuple[Tensor, Tensor]:
    """For each weight its place, 0 if it has none, and the weights that have none."""
    back = torch.full((weights,), -1)
    there = numbers < weights
    back[numbers[there]] = torch.arange(len(numbers))[there]
    return back.clamp(min=0), torch.nonzero(back < 0).flatten()
