"""A step of the hard gate and the record of a gate's step, each in one kernel instead of a dozen."""

from typing import Final

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK: Final = 1024
"""Columns that the program works on at once."""


@triton.jit
def _hard_step(alpha, grad, costs, sizes, limit, count, BLOCK: tl.constexpr):
    """The step of HAM by one program, in the order of float64 operations that PyTorch has."""
    total = tl.zeros((BLOCK,), tl.int64)
    start = 0
    while start < count:
        at = start + tl.arange(0, BLOCK)
        live = tl.load(alpha + at, mask=at < count, other=0.0) > 0
        total += tl.where(live, tl.load(costs + at, mask=at < count, other=0), 0)
        start += BLOCK
    over = tl.sum(total, 0) - limit
    sign = (over > 0).to(tl.float64) - (over < 0).to(tl.float64)
    eta, wind = tl.load(sizes), tl.load(sizes + 1) * sign
    start = 0
    while start < count:
        at = start + tl.arange(0, BLOCK)
        slope = tl.load(grad + at, mask=at < count, other=0.0).to(tl.float64)
        new = tl.load(alpha + at, mask=at < count, other=0.0) - eta * slope - wind
        tl.store(alpha + at, new, mask=at < count)
        start += BLOCK


@triton.jit
def _record(before, after, costs, now, counts, scores, step, every, columns, count, BLOCK: tl.constexpr):
    """Writes a row of counts, and a row of scores if `every` divides the step."""
    done = tl.load(step)
    row = done // every
    live = tl.zeros((BLOCK,), tl.int64)
    cost = tl.zeros((BLOCK,), tl.int64)
    back = tl.zeros((BLOCK,), tl.int64)
    start = 0
    while start < count:
        at = start + tl.arange(0, BLOCK)
        there = at < count
        was = tl.load(before + at, mask=there, other=0).to(tl.int64)
        live += was
        cost += was * tl.load(costs + at, mask=there, other=0)
        back += tl.load(after + at, mask=there, other=0).to(tl.int64) * (1 - was)
        kept = (at < columns) & (done % every == 0)
        tl.store(scores + row * columns + at, tl.load(now + at, mask=kept, other=0.0), mask=kept)
        start += BLOCK
    tl.store(counts + 3 * done, tl.sum(live, 0))
    tl.store(counts + 3 * done + 1, tl.sum(cost, 0))
    tl.store(counts + 3 * done + 2, tl.sum(back, 0))
    tl.store(step, done + 1)


def hard_step(alpha: Tensor, grad: Tensor, costs: Tensor, sizes: Tensor, limit: int) -> None:
    """Lets alpha (S,) become alpha - sizes[0] * grad - sizes[1] * sign(cost of columns with alpha above 0 - limit)."""
    _hard_step[(1,)](
        alpha, grad.contiguous(), costs, sizes, limit, len(alpha), BLOCK=BLOCK, num_warps=8, enable_fp_fusion=False
    )


def record(
    before: Tensor, after: Tensor, costs: Tensor, now: Tensor, counts: Tensor, scores: Tensor, step: Tensor, every: int
) -> None:
    """Row `step` of counts (steps, 3), and row step // every of scores (rows, columns) if it begins; then step + 1."""
    _record[(1,)](
        before.view(torch.uint8), after.view(torch.uint8), costs, now, counts, scores, step, every, scores.shape[1],
        len(before), BLOCK=BLOCK, num_warps=8,
    )  # fmt: skip
