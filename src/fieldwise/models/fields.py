"""Which fields a layout or mask leaves, and the inputs that belong to them."""

import torch
from torch import Tensor

from fieldwise.core.mask import Mask
from fieldwise.core.schema import Layout


def needed_fields(layout: Layout, linear: Layout | None) -> tuple[str, ...]:
    """Names of the fields that have columns or first-order weights.

    Where tiers share a vector, a value reads the first one's `unknown` if no tier knows it: if the first has columns,
    all tiers are needed.
    """
    first = linear.widths if linear else (0,) * len(layout.widths)
    needed = {j for j, pair in enumerate(zip(layout.widths, first, strict=True)) if any(pair)}
    if layout.shared is not None:
        needed |= {j for _, own in layout.members if layout.widths[own[0]] for j in own}
    return tuple(name for j, name in enumerate(layout.schema.names) if j in needed)


def kept_fields(mask: Mask, each: int) -> Tensor:
    """Indices of the inputs to keep, for layers with `each` inputs per field: those of fields that keep a column."""
    before = [j for j, width in enumerate(mask.full.widths) if width]
    places = [place for place, j in enumerate(before) if mask.widths[j]]
    return (torch.tensor(places)[:, None] * each + torch.arange(each)).flatten()


def live_fields(layout: Layout) -> list[int]:
    """Indices of the fields with at least one column."""
    return [j for j, width in enumerate(layout.widths) if width]
