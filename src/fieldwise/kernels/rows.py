"""Kernels that update only the rows that a batch reads, after the updates that these missed."""

import math

import triton
import triton.language as tl
from torch import Tensor

from fieldwise.kernels.tables import PIECE, wide


@triton.jit
def _catch_up(
    weights, firsts, seconds, lasts, rows, points, step, count, width, top, steps, warm,
    DENSE: tl.constexpr, REACH: tl.constexpr, SETTLED: tl.constexpr, LOG1: tl.constexpr, LOG2: tl.constexpr,
    MEAN: tl.constexpr, EPSILON: tl.constexpr, BLOCK: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Applies the steps that rows missed; `rows` are sorted, or with DENSE the first of adjacent ones."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    column = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)[None, :]
    there = at < count
    if DENSE:
        row = at + rows
    else:
        row = tl.load(rows + at, mask=there, other=-1)
        there = there & (row != tl.load(rows + at - 1, mask=there & (at > 0), other=-1))
    now = tl.load(step)
    last = tl.load(lasts + row, mask=there, other=0)
    there = there & (last > 0) & (last < now)
    missed = now - last
    point = points + (tl.minimum(last, SETTLED) * (REACH + 1) + tl.minimum(missed, REACH)) * 4
    weight_a = tl.load(point, mask=there, other=0.0)[:, None]
    point_a = tl.load(point + 1, mask=there, other=1.0)[:, None]
    weight_b = tl.load(point + 2, mask=there, other=0.0)[:, None]
    point_b = tl.load(point + 3, mask=there, other=1.0)[:, None]
    gap = missed.to(tl.float32)
    rate = tl.zeros((BLOCK,), tl.float32) + top
    if steps > 0:  # the mean rate of the missed steps, weighted by falling powers of the first beta
        long = tl.maximum(gap, 1.0).to(tl.float64)
        power = tl.exp(long * LOG1)
        mean = last.to(tl.float64) - 1 + MEAN - long * power / (1 - power)
        rising = tl.minimum((mean + 1) / (warm * steps + 1), 1.0)
        falling = tl.maximum((steps - mean) / steps, 0.0)
        rate = (top * rising * falling).to(tl.float32)
    both = there[:, None] & (column < width)
    place = row.to(tl.int64)[:, None] * width + column
    first = tl.load(firsts + place, mask=both, other=0.0)
    second = tl.load(seconds + place, mask=both, other=0.0)
    root = tl.sqrt(second)
    push = weight_a / (root + EPSILON * point_a) + weight_b / (root + EPSILON * point_b)
    weight = tl.load(weights + place, mask=both, other=0.0) - rate[:, None] * push * first
    tl.store(weights + place, weight, mask=both)
    tl.store(firsts + place, first * tl.exp(gap * LOG1)[:, None], mask=both)
    tl.store(seconds + place, second * tl.exp(gap * LOG2)[:, None], mask=both)


@triton.jit
def _mark(lasts, ends, rows, step, count, FRESH: tl.constexpr, BLOCK: tl.constexpr):
    """Writes the step to rows; with FRESH only to those that had a step before, and the end of each in the order."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    there = at < count
    row = tl.load(rows + at, mask=there, other=-1)
    there = there & (row != tl.load(rows + at + 1, mask=at + 1 < count, other=-1))
    if FRESH:
        tl.store(ends + row, at + 1, mask=there)
        there = there & (tl.load(lasts + row, mask=there, other=0) > 0)
    tl.store(lasts + row, tl.zeros((BLOCK,), tl.int32) + tl.load(step), mask=there)


@triton.jit
def _adam(
    weights, firsts, seconds, sums, rows, ends, rates, count, width,
    BLOCK: tl.constexpr, WIDTH: tl.constexpr, PIECE: tl.constexpr, BETA1: tl.constexpr, BETA2: tl.constexpr,
    EPSILON: tl.constexpr,
):  # fmt: skip
    """One step of Adam on the rows that a batch reads, each at its first place in the order."""
    start = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    column = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)[None, :]
    there = start < count
    row = tl.load(rows + start, mask=there, other=-1)
    there = there & (row != tl.load(rows + start - 1, mask=there & (start > 0), other=-1))
    end = tl.load(ends + row, mask=there, other=0)
    both = there[:, None] & (column < width)
    at = row.to(tl.int64)[:, None] * width + column
    weight = tl.load(weights + at, mask=both, other=0.0)
    first = tl.load(firsts + at, mask=both, other=0.0)
    second = tl.load(seconds + at, mask=both, other=0.0)
    piece = start // PIECE
    pieces = tl.where(there, (end - 1) // PIECE - piece + 1, 0)
    grad = tl.zeros((BLOCK, WIDTH), tl.float32)
    most = tl.max(pieces, 0)
    k = 0
    while k < most:
        place = tl.minimum((piece + k + 1) * PIECE, end) - 1
        mine = (k < pieces)[:, None] & both
        grad += tl.load(sums + place.to(tl.int64)[:, None] * width + column, mask=mine, other=0.0)
        k += 1
    first = BETA1 * first + (1 - BETA1) * grad
    second = BETA2 * second + (1 - BETA2) * grad * grad
    weight -= tl.load(rates) * first / (tl.sqrt(second) * tl.load(rates + 1) + EPSILON)
    tl.store(weights + at, weight, mask=both)
    tl.store(firsts + at, first, mask=both)
    tl.store(seconds + at, second, mask=both)


def catch_up(
    state: tuple[Tensor, Tensor, Tensor], lasts: Tensor, rows: Tensor | range, points: Tensor, step: Tensor,
    rate: tuple[float, int, float], betas: tuple[float, float], epsilon: float,
) -> None:  # fmt: skip
    """Apply to weights and moments of rows what they missed: sorted rows (N,), or a range of them.

    `points` has two quadrature points by last and missed steps; `rate` is the highest, the steps of the training, 0 if
    it is constant, and the part of them in which it rises.
    """
    width, (_, reach, _) = state[0].shape[1], points.shape
    columns = wide(width)
    block = max(1, 1024 // columns)
    dense = isinstance(rows, range)
    grid = (triton.cdiv(len(rows), block), triton.cdiv(width, columns))
    _catch_up[grid](
        *state, lasts, rows.start if isinstance(rows, range) else rows, points, step, len(rows), width, *rate,
        DENSE=dense, REACH=reach - 1, SETTLED=len(points) - 1, LOG1=math.log(betas[0]), LOG2=math.log(betas[1]),
        MEAN=1 / (1 - betas[0]), EPSILON=epsilon, BLOCK=block, WIDTH=columns,
    )  # fmt: skip


def mark(lasts: Tensor, ends: Tensor, rows: Tensor, step: Tensor, fresh: bool) -> None:
    """Write the step to sorted rows: to all, or if `fresh` to those with an earlier one, with the ends of all."""
    _mark[(triton.cdiv(len(rows), 1024),)](lasts, ends, rows, step, len(rows), FRESH=fresh, BLOCK=1024)


def adam(
    state: tuple[Tensor, Tensor, Tensor], sums: Tensor, rows: Tensor, ends: Tensor, rates: Tensor,
    betas: tuple[float, float], epsilon: float,
) -> None:  # fmt: skip
    """One step of Adam on sorted rows (N,), with the sums of `pieces`."""
    width = state[0].shape[1]
    columns = wide(width)
    block = max(1, 1024 // columns)
    grid = (triton.cdiv(len(rows), block), triton.cdiv(width, columns))
    _adam[grid](
        *state, sums, rows, ends, rates, len(rows), width, BLOCK=block, WIDTH=columns, PIECE=PIECE,
        BETA1=betas[0], BETA2=betas[1], EPSILON=epsilon,
    )  # fmt: skip
