"""The embedding tables of all fields."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from itertools import accumulate, groupby, pairwise

import torch
from torch import Tensor, nn

from fieldwise.core.schema import PADDING, UNKNOWN, Layout, Schema
from fieldwise.processes.ranks import current
from fieldwise.tables.lookup import Found, Reader, Rounding, whole_table
from fieldwise.tables.shards import Shards


class FieldLookup(nn.Module, ABC):
    """Looks up all fields: ids (B, places) to one vector (B, S), the concatenation of all fields.

    Tables of equal width are stacked into one, so that each width needs one gather. A field of width 0 has no table,
    and its ids are never read. A field with several values per row has several places and the mean of their
    embeddings; PADDING does not count.
    """

    def __init__(self, layout: Layout) -> None:
        super().__init__()
        self.layout = layout
        self.groups, self._runs = by_width(layout), runs(layout.widths)
        """The fields of each width above 0."""
        self._lengths = {w: runs(tuple(layout.schema.lengths[j] for j in own)) for w, own in self.groups.items()}
        stacked = layout.stacked_rows
        for width, fields in self.groups.items():
            places, owners = places_of(layout.schema, fields)
            offsets = torch.tensor([stacked[fields[owner]].start for owner in owners], dtype=torch.int32)
            self.register_buffer(f"offsets_{width}", offsets, persistent=False)
            self.register_buffer(f"places_{width}", torch.tensor(places), persistent=False)
            if len(places) > len(fields):
                self.register_buffer(f"owners_{width}", torch.tensor(owners), persistent=False)

        self._starts, self._stacked = [0, *accumulate(layout.schema.lengths)], stacked
        self._one_value = all(layout.schema.lengths[j] == 1 for fields in self.groups.values() for j in fields)

    @abstractmethod
    def read(self, rows: Tensor, width: int) -> Tensor:
        """Rows of the stacked table of one width, at row numbers (B, n): (B, n, width)."""

    @abstractmethod
    def read_field(self, field: int, ids: Tensor) -> Tensor:
        """Rows of the table of one field, at ids (B,): (B, width)."""

    def forward(self, ids: Tensor) -> Tensor:
        """The concatenated embedding v of the paper, (B, S)."""
        if torch.is_inference_mode_enabled() and ids.device.type == "cpu" and self._one_value and len(self._runs) > 1:
            return self._by_field(ids)
        parts: dict[int, Iterator[Tensor]] = {}
        for width in self.groups:
            pooled = self.is_pooled(width)
            found = self._pooled(ids, width) if pooled else self.read(self.rows(ids, width), width)
            if len(self.groups) == 1:
                return found.flatten(1)
            parts[width] = iter(found.split([count for other, count in self._runs if other == width], 1))
        ordered = [next(parts[width]).flatten(1) for width, _ in self._runs if width]
        return torch.cat(ordered, dim=1) if len(ordered) > 1 else ordered[0]

    def _by_field(self, ids: Tensor) -> Tensor:
        """The same with a gather per field: on a CPU, single tables are in the cache and need no row numbers."""
        columns = ids.t().to(torch.int64, memory_format=torch.contiguous_format).unbind()
        widths = self.layout.widths
        return torch.cat([self.read_field(j, columns[self._starts[j]]) for j, width in enumerate(widths) if width], 1)

    def is_pooled(self, width: int) -> bool:
        """Whether a field of this width has several places."""
        return len(self.get_buffer(f"places_{width}")) > len(self.groups[width])

    def rows(self, ids: Tensor, width: int) -> Tensor:
        """Row numbers in the stacked table of one width, (B, fields), if each field has one place."""
        return self._own(ids, width) + self.get_buffer(f"offsets_{width}")

    def _own(self, ids: Tensor, width: int) -> Tensor:
        """The ids of the fields of one width."""
        places = self.get_buffer(f"places_{width}")
        return ids if len(places) == ids.shape[1] else ids[:, places]

    def _pooled(self, ids: Tensor, width: int) -> Tensor:
        """The mean over each field's places, (B, fields, width)."""
        rows = self._own(ids, width)
        there = rows != PADDING  # (B, places)
        rows = torch.where(there, rows + self.get_buffer(f"offsets_{width}"), 0)
        found = self.read(rows, width) * there.unsqueeze(2)  # (B, places, width)
        # no index_add: in ONNX it is a ScatterND, in which threads of ONNX Runtime lose updates
        lengths = self._lengths[width]
        sizes = [length * fields for length, fields in lengths]
        pools = zip(lengths, found.split(sizes, 1), there.split(sizes, 1), strict=True)
        return torch.cat([means(part, known, length) for (length, _), part, known in pools], dim=1)


class FieldEmbedding(FieldLookup):
    """The trained tables of all fields, in float32."""

    def __init__(self, layout: Layout, init: float) -> None:
        super().__init__(layout)
        self.reader: Reader = whole_table
        """Reads rows of a table. During training the optimizer replaces it, to update rows only when they are read."""
        self.rounding: Rounding | None = None
        """Rounds the rows that are read, in a quantization-aware training."""
        self.tables, self.shards = nn.ParameterDict(), _shards(layout, self.groups)
        """The stacked tables, or this process's part of those with shards."""
        self._spans = list(self._stacked)
        self._one_value = self._one_value and not self.shards  # else fields would be read one by one
        for width, fields in self.groups.items():
            self.tables[str(width)] = nn.Parameter(self._new(width, fields, init))
            if width in self.shards:
                for j, span in zip(fields, self.shards[width].spans, strict=True):
                    self._spans[j] = span

    def _new(self, width: int, fields: list[int], init: float) -> Tensor:
        """New rows of the stacked table of one width."""
        rows = [self._spans[j] for j in fields]
        # unknown values start at zero, and stay so unless training rows contain them
        unknown = torch.tensor([own.start + UNKNOWN for own in rows], device="cpu")
        shards = self.shards.get(width)
        table = torch.empty(shards.rows if shards else rows[-1].stop, width)
        if table.is_meta:  # draws there would import 73 MB of torch into every process that loads a model
            return table
        if shards:
            return shards.drawn(table, init, unknown)
        table.normal_().mul_(init)
        table[unknown] = 0
        return table

    def table(self, field: int) -> Tensor:
        """The table of one field, a view (cardinality, width) of the stacked weights, or of its own rows."""
        stacked, rows = self.span(field)
        return stacked[rows]

    def span(self, field: int) -> tuple[nn.Parameter, slice]:
        """The stacked table that contains one field, and the field's rows in it."""
        stacked: nn.Parameter = self.tables[str(self.layout.widths[field])]
        return stacked, self._spans[field]

    def shards_of(self, field: int) -> tuple[Shards, int] | None:
        """How the table of one field is split over processes, and its place among the fields of its width, if it is."""
        width = self.layout.widths[field]
        shards = self.shards.get(width)
        return (shards, self.groups[width].index(field)) if shards and shards.apart else None

    @property
    def is_apart(self) -> bool:
        """Whether other processes hold rows of a table."""
        return any(shards.apart for shards in self.shards.values())

    def part_for(self, other: "FieldEmbedding", field: int, columns: list[int]) -> Tensor:
        """Columns of one field: the rows that this process holds in another embedding of the same field."""
        part, here, there = self.table(field)[:, columns], self.shards_of(field), other.shards_of(field)
        if here and not there:
            return here[0].whole(here[1], part)
        if there and not here:
            own = there[0].blocks[there[1]]
            return part[own.start : own.stop]
        return part

    def stackings(self) -> Iterator[tuple[nn.Parameter, tuple[int, ...], int]]:
        """The stacked tables, the fields in each, and the number of ids per row that read it."""
        for width, fields in self.groups.items():
            yield self.tables[str(width)], tuple(fields), len(self.get_buffer(f"places_{width}"))

    def with_shards(self) -> Iterator[tuple[nn.Parameter, Shards]]:
        """The stacked tables with shards."""
        for width, shards in self.shards.items():
            yield self.tables[str(width)], shards

    def read(self, rows: Tensor, width: int) -> Tensor:
        """Rows of the stacked table of one width, (B, n, width)."""
        return self.at(rows, width).at_places()

    def read_field(self, field: int, ids: Tensor) -> Tensor:
        """Rows of the table of one field, at ids (B,): (B, width)."""
        stacked, rows = self.span(field)
        return stacked.narrow(0, rows.start, rows.stop - rows.start).index_select(0, ids)

    def find(self, ids: Tensor, width: int) -> Found:
        """Rows read by the fields of one width, if each has one place."""
        return self.at(self.rows(ids, width), width)

    def at(self, rows: Tensor, width: int) -> Found:
        """Rows of the stacked table of one width, at row numbers (B, n)."""
        table, shards = self.tables[str(width)], self.shards.get(width)
        if shards and shards.apart:
            found = shards.read(rows, lambda own: self.reader(table, own))
        else:
            found = self.reader(table, rows)
        return found if self.rounding is None else self.rounding(found, width)

    def counts(self, found: Found, fields: list[int]) -> list[int]:
        """Number of found rows per field, for all fields of one width."""
        each = [self.layout.schema.cardinalities[j] for j in fields]
        if found.rows is None:
            return each
        ends = torch.searchsorted(found.rows, torch.tensor(list(accumulate(each)))).tolist()
        return [end - start for start, end in pairwise([0, *ends])]


def means(found: Tensor, there: Tensor, length: int) -> Tensor:
    """Means over fields with `length` places each, (B, fields * length, width) to (B, fields, width)."""
    if length == 1:
        return found
    counts = there.unflatten(1, (-1, length)).sum(2, keepdim=True)
    means: Tensor = found.unflatten(1, (-1, length)).sum(2) / counts.clamp(min=1)
    return means


def places_of(schema: Schema, fields: list[int]) -> tuple[list[int], list[int]]:
    """The places of some fields in an encoded row, and the index of the field that each belongs to."""
    lengths = schema.lengths
    starts = [0, *accumulate(lengths)]
    pairs = [(starts[j] + i, owner) for owner, j in enumerate(fields) for i in range(lengths[j])]
    return [place for place, _ in pairs], [owner for _, owner in pairs]


def by_width(layout: Layout) -> dict[int, list[int]]:
    """The fields of each width above 0."""
    groups: dict[int, list[int]] = {}
    for j, width in enumerate(layout.widths):
        if width:
            groups.setdefault(width, []).append(j)
    return groups


def _shards(layout: Layout, groups: dict[int, list[int]]) -> dict[int, Shards]:
    """The stacked tables that are split over the processes, by width."""
    least, cardinalities = current().split_from, layout.schema.cardinalities
    sizes = {width: [cardinalities[j] for j in fields] for width, fields in groups.items()}
    return {width: Shards(own, width) for width, own in sizes.items() if least is not None and sum(own) >= least}


def runs(sizes: tuple[int, ...]) -> list[tuple[int, int]]:
    """Runs of adjacent equal sizes: (size, count) each."""
    return [(size, len(list(same))) for size, same in groupby(sizes)]
