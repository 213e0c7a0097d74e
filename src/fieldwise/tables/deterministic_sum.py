"""Sums over places on a GPU, in whole numbers.

A GPU adds up what many places give to one row in whatever order they come, and sums of floats hang on that order. Sums
of whole numbers do not: so values are scaled to 64-bit numbers, added, and scaled back. The same training then gives
the same numbers twice, without the sorting by which PyTorch makes sure of it.
"""

from typing import Final

import torch
from torch import Tensor

LEAST: Final = -64
"""The least exponent of a largest value; further down, scales would leave a float's range."""


def sums(values: Tensor, rows: Tensor, count: int) -> Tensor:
    """The values (N, width) of each of `count` rows added up, (count, width); `rows` (N,) says whose each is."""
    bits = 62 - len(values).bit_length()  # all N of them may be the largest, and meet in one row
    largest = torch.linalg.vector_norm(values, float("inf"))
    _, exponent = torch.frexp(largest)  # it is below 2^exponent
    scale = torch.exp2(bits - exponent.clamp(min=LEAST)) + 0 * largest  # of what is not finite, no sum may look finite
    whole = torch.zeros(count, values.shape[1], dtype=torch.int64, device=values.device)
    whole.index_add_(0, rows, (values * scale).long())
    found: Tensor = whole / scale
    return found
