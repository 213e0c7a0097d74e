"""Sums by column over the rows of a batch, in a fixed order: results too narrow for PyTorch's sums to occupy a GPU."""

from typing import Final

import triton
import triton.language as tl
from torch import Tensor

WIDTH: Final = 64
"""Columns per program."""
ROWS: Final = 32
"""Rows that a program works on at once."""
REPEAT: Final = 8
"""Times that it does."""


@triton.jit
def _dots(a, b, parts, batch, width, REPEAT: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    """The sum of products over some rows, for some columns."""
    column = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    total = tl.zeros((ROWS, WIDTH), tl.float32)
    for k in range(REPEAT):
        row = (tl.program_id(0) * REPEAT + k) * ROWS + tl.arange(0, ROWS)
        there = (row < batch)[:, None] & (column < width)[None, :]
        at = row.to(tl.int64)[:, None] * width + column[None, :]
        total += tl.load(a + at, mask=there, other=0.0) * tl.load(b + at, mask=there, other=0.0)
    tl.store(parts + tl.program_id(0) * width + column, tl.sum(total, 0), mask=column < width)


@triton.jit
def _totals(parts, totals, count, width, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    """The sum of all parts, for some columns."""
    column = tl.program_id(0) * WIDTH + tl.arange(0, WIDTH)
    start = parts + tl.program_id(1).to(tl.int64) * count * width
    total = tl.zeros((ROWS, WIDTH), tl.float32)
    first = 0
    while first < count:
        row = first + tl.arange(0, ROWS)
        there = (row < count)[:, None] & (column < width)[None, :]
        total += tl.load(start + row[:, None] * width + column[None, :], mask=there, other=0.0)
        first += ROWS
    tl.store(totals + tl.program_id(1) * width + column, tl.sum(total, 0), mask=column < width)


def dots(a: Tensor, b: Tensor) -> Tensor:
    """The product of each column of two float32 matrices (B, S), (S,)."""
    (batch, width), columns = a.shape, triton.cdiv(a.shape[1], WIDTH)
    parts = a.new_empty(1, triton.cdiv(batch, ROWS * REPEAT), width)
    _dots[(parts.shape[1], columns)](a, b, parts, batch, width, REPEAT=REPEAT, ROWS=ROWS, WIDTH=WIDTH)
    return totals(parts)[0]


def totals(parts: Tensor) -> Tensor:
    """Sums over the parts of each of several (n, parts, S), float32: (n, S)."""
    many, count, width = parts.shape
    found = parts.new_empty(many, width)
    _totals[(triton.cdiv(width, 32), many)](parts, found, count, width, ROWS=64, WIDTH=32)
    return found
