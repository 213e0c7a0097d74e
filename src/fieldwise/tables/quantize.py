"""Rounding of tables to integers: scales of the least error, and packing of two 4-bit integers per byte."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor, nn

from fieldwise.core.errors import RunError
from fieldwise.core.store import Store

SAMPLE: Final = 2**16
"""Maximum rows of a field that scales are fitted to, and errors are measured on; the rows are evenly spaced. Scales of
rows are fitted to so many at once."""
_CLIPS: Final = (1.0, 0.95, 0.9, 0.85, 0.8, 0.75, 0.7, 0.65, 0.6, 0.55, 0.5, 0.45, 0.4, 0.35, 0.3, 0.25, 0.2)
"""Fractions of the largest value that are tried as the largest that is not clipped."""
AT_ONCE: Final = 2**20
"""Numbers that are rounded in one operation while scales are fitted: many small ones are slow, large ones leave the
cache."""
TINY: Final = 1e-30
"""The divisor in place of a scale of 0, and the size up to which a product of gradients counts as 0; above 0 in
float32."""
ZERO: Final = 8
"""A packed 4-bit integer is stored with this offset, so that it is never negative."""


def fitted_scales(values: Tensor, top: int, dim: int = 0) -> Tensor:
    """Scales with the least squared error of values (R, width), one per column (dim 0) or per row (dim 1).

    Each clips the values at a fraction of the largest. Values that are all zero have scale 0.
    """
    values = values.detach().float()
    if dim == 1 and len(values) > SAMPLE:
        return torch.cat([fitted_scales(rows, top, dim) for rows in values.split(SAMPLE)])
    largest = values.abs().amax(dim, keepdim=True)
    if dim == 0 and len(values) > SAMPLE:
        values = values[:: -(-len(values) // SAMPLE)]
    clips = values.new_tensor([clip / top for clip in _CLIPS])
    scales = largest * clips[:, None, None]
    at_once = max(1, AT_ONCE // max(1, values.numel()))
    errors = [
        rounded(values, some, top).sub_(values).square_().sum(dim + 1, keepdim=True) for some in scales.split(at_once)
    ]
    best = torch.cat(errors).argmin(0, keepdim=True)  # the first of equal ones
    return scales.gather(0, best).flatten()


def quantized(values: Tensor, scales: Tensor, top: int) -> Tensor:
    """The nearest integers from -top to top, as int8; `scales` must broadcast. Where the scale is 0, zeros."""
    return _integers(values, scales, top).to(torch.int8)


def rounded(values: Tensor, scales: Tensor, top: int) -> Tensor:
    """The values after rounding to integers and back."""
    return _integers(values, scales, top) * scales


def _integers(values: Tensor, scales: Tensor, top: int) -> Tensor:
    return (values / torch.where(scales == 0, torch.inf, scales)).round_().clamp_(-top, top)


@dataclass(frozen=True)
class Grid:
    """What each number is rounded to, ready for many steps of a training; all broadcast to the numbers."""

    scales: Tensor
    divisors: Tensor
    """The scales; where they are 0, a tiny number, so that every number but 0 is beyond the range."""
    tops: Tensor | int
    """The largest integers, or one for all."""

    @classmethod
    def of(cls, scales: Tensor, tops: Tensor | int) -> "Grid":
        """Those of scales and the largest integers."""
        return cls(scales, torch.where(scales == 0, TINY, scales), tops)

    def fill(self, scales: Tensor) -> None:
        """Change the scales, in place."""
        self.copy_(Grid.of(scales, self.tops))

    def at(self, rows: Tensor) -> "Grid":
        """Those of rows."""
        tops = self.tops if isinstance(self.tops, int) else self.tops[rows]
        return Grid(self.scales[rows], self.divisors[rows], tops)

    def copy_(self, other: "Grid") -> None:
        """Take the numbers of others, in place."""
        self.scales.copy_(other.scales)
        self.divisors.copy_(other.divisors)

    @classmethod
    def flat(cls, parts: "Sequence[tuple[Grid, torch.Size]]") -> "Grid":
        """Those of tables of these shapes, one number after the other."""
        scales = torch.cat([grid.scales.expand(shape).flatten() for grid, shape in parts])
        first = parts[0][0].tops
        if isinstance(first, int) and all(isinstance(grid.tops, int) and grid.tops == first for grid, _ in parts):
            return cls.of(scales, first)
        each = [torch.as_tensor(grid.tops, device=scales.device).expand(shape).flatten() for grid, shape in parts]
        return cls.of(scales, torch.cat(each))


class _Straight(torch.autograd.Function):
    """Rounding whose gradient passes unchanged where values are not clipped."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, grid: Grid) -> Tensor:
        """Values rounded to integers and back."""
        integers, tops = values.div(grid.divisors).round_(), grid.tops
        inside = integers.clamp(-tops, tops)  # type: ignore[arg-type]
        ctx.save_for_backward(integers.sub_(inside))
        return inside.mul_(grid.scales)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        """The gradient of the values; outside the range, only if a step against it moves them inside."""
        (beyond,), grad = ctx.saved_tensors, grads[0]
        inward = beyond * grad  # 0 inside the range
        return torch.ops.aten.threshold_backward(grad, inward, -TINY), None  # without booleans, which are slow on a CPU


def straight(values: Tensor, grid: Grid) -> Tensor:
    """`rounded`, with a straight-through gradient."""
    found: Tensor = _Straight.apply(values, grid)  # type: ignore[no-untyped-call]
    return found


def packed(integers: Tensor) -> Tensor:
    """4-bit integers (N,) as bytes (ceil(N / 2),): the first half in the low, the second in the high half of a byte."""
    bytes_ = (integers + ZERO).to(torch.uint8)
    if len(bytes_) % 2:
        bytes_ = torch.cat([bytes_, bytes_.new_full((1,), ZERO)])
    low, high = bytes_.tensor_split(2)
    return low | (high << 4)


def unpacked(bytes_: Tensor, count: int) -> Tensor:
    """The inverse of `packed`: the first `count` integers, int8."""
    return torch.cat([bytes_ & 15, bytes_ >> 4])[:count].to(torch.int8) - ZERO


def check_range(tables: nn.Module, store: Store) -> None:
    """Refuse tables that were filled with numbers beyond the range of float16."""
    for name, buffer in tables.named_buffers():
        if buffer.is_floating_point() and not buffer.isfinite().all():
            raise RunError(
                f"The tables hold numbers that '{store}' cannot ({name}: beyond the range of float16). "
                "Store them as int8 or float32."
            )
