"""Deterministic scatter sums on a GPU, in integers.

A GPU adds the contributions to a row in arbitrary order, and the rounding of float sums depends on the order. Integer
sums do not: values are scaled to 64-bit integers, added, and scaled back. Training is then reproducible without the
sorting that PyTorch's deterministic kernels need.
"""

from typing import Final

import torch
from torch import Tensor

LEAST: Final = -64
"""Smallest exponent of the largest value; below it, the scale would overflow float32."""


def sums(values: Tensor, rows: Tensor, count: int) -> Tensor:
    """Sum values (N, width) by row number `rows` (N,), giving (count, width)."""
    bits = 62 - len(values).bit_length()  # even if all N values are the largest and in one row
    largest = torch.linalg.vector_norm(values, float("inf"))
    _, exponent = torch.frexp(largest)  # largest < 2^exponent
    scale = torch.exp2(bits - exponent.clamp(min=LEAST)) + 0 * largest  # NaN and infinity propagate to all sums
    whole = torch.zeros(count, values.shape[1], dtype=torch.int64, device=values.device)
    whole.index_add_(0, rows, (values * scale).long())
    found: Tensor = whole / scale
    return found
