"""The tables of all fields, and the flat vector they give."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from fieldwise.core.schema import UNKNOWN, Layout


class FieldEmbedding(nn.Module):
    """Looks up all fields: ids (B, F) to one vector (B, S), field after field.

    Tables of equal width are stacked into one, so that each width costs one gather. A field of width 0 has no table and
    its ids are never read.
    """

    def __init__(self, layout: Layout, init: float) -> None:
        super().__init__()
        self.layout = layout
        self._groups = by_width(layout)
        self.tables = nn.ParameterDict()
        for width, fields in self._groups.items():
            counts = [layout.schema.cardinalities[j] for j in fields]
            self.tables[str(width)] = nn.Parameter(torch.randn(sum(counts), width) * init)
            offsets = torch.tensor([sum(counts[:place]) for place in range(len(counts))], dtype=torch.int32)
            self.register_buffer(f"offsets_{width}", offsets, persistent=False)
            self.register_buffer(f"fields_{width}", torch.tensor(fields), persistent=False)
        with torch.no_grad():
            for j, width in enumerate(layout.widths):
                if width:  # nothing is known of an unknown value: it adds nothing until training rows hold it
                    self.table(j)[UNKNOWN] = 0

    def table(self, field: int) -> Tensor:
        """The table of one field, a view (cardinality, width) into the stacked weights."""
        width, counts = self.layout.widths[field], self.layout.schema.cardinalities
        start = sum(counts[j] for j in self._groups[width] if j < field)
        table: Tensor = self.tables[str(width)]
        return table[start : start + counts[field]]

    def forward(self, ids: Tensor) -> Tensor:
        """The concatenated embedding v of the paper, (B, S)."""
        parts: dict[int, Tensor] = {}
        for width, fields in self._groups.items():
            rows = ids if len(fields) == ids.shape[1] else ids[:, self.get_buffer(f"fields_{width}")]
            rows = rows + self.get_buffer(f"offsets_{width}")
            found = functional.embedding(rows, self.tables[str(width)])  # (B, fields, width)
            if len(self._groups) == 1:
                return found.flatten(1)
            parts.update(zip(fields, found.unbind(1), strict=True))
        return torch.cat([parts[j] for j in sorted(parts)], dim=1)


def by_width(layout: Layout) -> dict[int, list[int]]:
    """The fields of each width above 0."""
    groups: dict[int, list[int]] = {}
    for j, width in enumerate(layout.widths):
        if width:
            groups.setdefault(width, []).append(j)
    return groups
