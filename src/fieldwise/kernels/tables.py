"""Kernels that read rows of tables and apply Adam to them, with the same sums in every run."""

from typing import Final

import triton
import triton.language as tl
from torch import Tensor

PIECE: Final = 128
"""Sorted places that one program sums; the sum of a row with places in several pieces adds those."""
WIDEST: Final = 32
"""Columns that one program works on."""


@triton.jit
def _ends(rows, ends, count, BLOCK: tl.constexpr):
    """One past the last place of every row in the sorted order."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    row = tl.load(rows + at, mask=at < count, other=-1)
    after = tl.load(rows + at + 1, mask=at + 1 < count, other=-1)
    tl.store(ends + row, at + 1, mask=(at < count) & (row != after))


@triton.jit
def _same_row(row_a, sum_a, row_b, sum_b):
    return row_b, tl.where(row_a == row_b, sum_a + sum_b, sum_b)


@triton.jit
def _pieces(grads, rows, order, sums, count, places, width, PIECE: tl.constexpr, WIDTH: tl.constexpr):
    """The sum of each row's gradients within a piece of the sorted order, at the last place of the row there."""
    at = tl.program_id(0) * PIECE + tl.arange(0, PIECE)
    column = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)[None, :]
    there = at < count
    row = tl.load(rows + at, mask=there, other=-1)
    after = tl.load(rows + at + 1, mask=at + 1 < count, other=-1)
    place = tl.load(order + at, mask=there, other=0) // places
    both = there[:, None] & (column < width)
    grad = tl.load(grads + place[:, None] * width + column, mask=both, other=0.0).to(tl.float32)
    _, total = tl.associative_scan((tl.broadcast_to(row[:, None], (PIECE, WIDTH)), grad), 0, _same_row)
    last = (row != after) | (tl.arange(0, PIECE) == PIECE - 1)
    tl.store(sums + at.to(tl.int64)[:, None] * width + column, total, mask=both & last[:, None])


@triton.jit
def _idle(
    weights, firsts, seconds, ends, rates, rows, width,
    ROWS: tl.constexpr, WIDTH: tl.constexpr, BETA1: tl.constexpr, BETA2: tl.constexpr, EPSILON: tl.constexpr,
):  # fmt: skip
    """One step of Adam without a gradient on all rows without an end."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)[None, :]
    idle = tl.load(ends + row, mask=row < rows, other=1) == 0
    at = row.to(tl.int64)[:, None] * width + column
    both = idle[:, None] & (column < width)
    weight = tl.load(weights + at, mask=both, other=0.0)
    first = BETA1 * tl.load(firsts + at, mask=both, other=0.0)
    second = BETA2 * tl.load(seconds + at, mask=both, other=0.0)
    weight -= tl.load(rates) * first / (tl.sqrt(second) * tl.load(rates + 1) + EPSILON)
    tl.store(weights + at, weight, mask=both)
    tl.store(firsts + at, first, mask=both)
    tl.store(seconds + at, second, mask=both)


@triton.jit
def _tick(step, rate, rates, LOG1: tl.constexpr, LOG2: tl.constexpr):
    """Counts a step, and computes its rate and the scale of the second moment's root."""
    done = tl.load(step) + 1
    tl.store(step, done)
    count = done.to(tl.float64)
    tl.store(rates, (tl.load(rate).to(tl.float64) / (1 - tl.exp(count * LOG1))).to(tl.float32))
    tl.store(rates + 1, (1 / tl.sqrt(1 - tl.exp(count * LOG2))).to(tl.float32))


@triton.jit
def _gather(weights, numbers, found, count, width, BLOCK: tl.constexpr, WIDTH: tl.constexpr):
    """Rows at places."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    column = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)[None, :]
    there = at < count
    row = tl.load(numbers + at, mask=there, other=0).to(tl.int64)
    both = there[:, None] & (column < width)
    got = tl.load(weights + row[:, None] * width + column, mask=both, other=0.0)
    tl.store(found + at.to(tl.int64)[:, None] * width + column, got, mask=both)


def wide(width: int) -> int:
    """Columns that one program works on, of a table with this many."""
    return min(WIDEST, 1 << (width - 1).bit_length())


def find_ends(rows: Tensor, ends: Tensor) -> None:
    """Fill one past the last place of each row in sorted `rows` (N,); 0 for rows that have none."""
    ends.zero_()
    _ends[(triton.cdiv(len(rows), 1024),)](rows, ends, len(rows), BLOCK=1024)


def pieces(grads: Tensor, rows: Tensor, order: Tensor, sums: Tensor, places: int = 1) -> None:
    """Sum gradients (N / places, width) by sorted row within each piece."""
    width, columns = grads.shape[1], wide(grads.shape[1])
    grid = (triton.cdiv(len(rows), PIECE), triton.cdiv(width, columns))
    _pieces[grid](grads, rows, order, sums, len(rows), places, width, PIECE=PIECE, WIDTH=columns)


def idle(
    state: tuple[Tensor, Tensor, Tensor], ends: Tensor, rates: Tensor, betas: tuple[float, float], epsilon: float
) -> None:
    """One step of Adam on the weights and moments of all rows without an end, which have no gradient."""
    rows, width = state[0].shape
    columns = wide(width)
    block = max(1, 1024 // columns)
    grid = (triton.cdiv(rows, block), triton.cdiv(width, columns))
    _idle[grid](*state, ends, rates, rows, width, ROWS=block, WIDTH=columns, BETA1=betas[0], BETA2=betas[1],
                EPSILON=epsilon)  # fmt: skip


def gather(weights: Tensor, numbers: Tensor) -> Tensor:
    """Rows of weights (R, width) at places, numbers (B, n): (B, n, width)."""
    width, columns = weights.shape[1], wide(weights.shape[1])
    weights, numbers, found = weights.contiguous(), numbers.contiguous(), weights.new_empty(*numbers.shape, width)
    if not numbers.numel():
        return found
    block = max(1, 2048 // columns)
    grid = (triton.cdiv(numbers.numel(), block), triton.cdiv(width, columns))
    _gather[grid](weights, numbers, found, numbers.numel(), width, BLOCK=block, WIDTH=columns)
    return found


def tick(step: Tensor, rate: Tensor, rates: Tensor, logs: tuple[float, float]) -> None:
    """Count a step; `rates` gets its rate with the bias of the first moment, and the factor of the second's root."""
    _tick[(1,)](step, rate, rates, LOG1=logs[0], LOG2=logs[1])
