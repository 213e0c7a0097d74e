"""Kernels for all of DCN-V2's cross layers that is not a matrix product, with the output layer's product by x."""

from typing import Final

import torch
import triton
import triton.language as tl
from torch import Tensor

TILE: Final = 4096
"""Numbers that a program works on at once."""
WIDEST: Final = 4096
"""Most columns of a row that a program can hold."""
REPEAT: Final = 4
"""Tiles per program of the backward pass, whose sums over rows it adds."""


@triton.jit
def _forward(
    x, v, h, w, out, low, dots, batch, width, stride,
    LAST: tl.constexpr, LOW: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """X + v h, also in the precision of the products; of the last layer only its product by w."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, WIDTH)
    there = (row < batch)[:, None] & (column < width)[None, :]
    at = row.to(tl.int64)[:, None] * width + column[None, :]
    got = tl.load(h + row.to(tl.int64)[:, None] * stride + column[None, :], mask=there, other=0.0).to(tl.float32)
    got = tl.load(x + at, mask=there, other=0.0) + tl.load(v + at, mask=there, other=0.0) * got
    if LAST:
        by = tl.load(w + column, mask=column < width, other=0.0)
        tl.store(dots + row, tl.sum(got * by[None, :], 1), mask=row < batch)
        if LOW:
            tl.store(low + at, got.to(low.dtype.element_ty), mask=there)
    else:
        tl.store(out + at, got, mask=there)
        if LOW:
            tl.store(low + at, got.to(low.dtype.element_ty), mask=there)


@triton.jit
def _backward(
    grads, w, more, x, v, h, of_v, of_h, of_w, of_bias, batch, width, stride,
    LAST: tl.constexpr, SUMS: tl.constexpr, REPEAT: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Of the layer's result (grads w, and more): its parts of the gradients of v, of h, of w and of the bias."""
    column = tl.arange(0, WIDTH)
    inside = column < width
    by = tl.load(w + column, mask=inside, other=0.0)[None, :]
    sum_w = tl.zeros((ROWS, WIDTH), tl.float32)
    sum_bias = tl.zeros((ROWS, WIDTH), tl.float32)
    for k in range(REPEAT):
        row = (tl.program_id(0) * REPEAT + k) * ROWS + tl.arange(0, ROWS)
        there = (row < batch)[:, None] & inside[None, :]
        at = row.to(tl.int64)[:, None] * width + column[None, :]
        at_h = row.to(tl.int64)[:, None] * stride + column[None, :]
        given = tl.load(grads + row, mask=row < batch, other=0.0)[:, None]
        grad = given * by
        if not LAST:
            grad += tl.load(more + at, mask=there, other=0.0).to(tl.float32)
        by_v = tl.load(v + at, mask=there, other=0.0)
        by_h = tl.load(h + at_h, mask=there, other=0.0).to(tl.float32)
        mine = grad * by_h
        if not LAST:
            mine += tl.load(of_v + at, mask=there, other=0.0)
        tl.store(of_v + at, mine, mask=there)
        own = (grad * by_v).to(of_h.dtype.element_ty)
        tl.store(of_h + at_h, own, mask=there)
        if SUMS:
            sum_bias += own.to(tl.float32)
            if LAST:
                sum_w += given * (tl.load(x + at, mask=there, other=0.0).to(tl.float32) + by_v * by_h)
    if SUMS:
        tl.store(of_bias + tl.program_id(0) * width + column, tl.sum(sum_bias, 0), mask=inside)
        if LAST:
            tl.store(of_w + tl.program_id(0) * width + column, tl.sum(sum_w, 0), mask=inside)


@triton.jit
def _finish(grads, w, more, of_v, batch, width, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    """Adds the gradient of the first layer's x, which is v."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, WIDTH)
    there = (row < batch)[:, None] & (column < width)[None, :]
    at = row.to(tl.int64)[:, None] * width + column[None, :]
    by = tl.load(w + column, mask=column < width, other=0.0)[None, :]
    grad = tl.load(grads + row, mask=row < batch, other=0.0)[:, None] * by
    grad += tl.load(more + at, mask=there, other=0.0).to(tl.float32)
    tl.store(of_v + at, tl.load(of_v + at, mask=there, other=0.0) + grad, mask=there)


def _tiles(width: int) -> dict[str, int]:
    wide = triton.next_power_of_2(width)
    return {"ROWS": max(1, TILE // wide), "WIDTH": wide, "num_warps": 8}


def forward(x: Tensor, v: Tensor, h: Tensor, low: bool) -> tuple[Tensor, Tensor]:
    """The next x, and the same in h's precision."""
    tiles, out = _tiles(v.shape[1]), torch.empty_like(v)
    lower = torch.empty_like(v, dtype=h.dtype) if low else out
    grid = (triton.cdiv(len(v), tiles["ROWS"]),)
    _forward[grid](x, v, h, v, out, lower, out, *v.shape, h.stride(0), LAST=False, LOW=low, **tiles)
    return out, lower


def last(x: Tensor, v: Tensor, h: Tensor, w: Tensor) -> Tensor:
    """The product of the last x by w, (B,)."""
    tiles, dots = _tiles(v.shape[1]), v.new_empty(len(v))
    grid = (triton.cdiv(len(v), tiles["ROWS"]),)
    _forward[grid](x, v, h, w, x, x, dots, *v.shape, h.stride(0), LAST=True, LOW=False, **tiles)
    return dots


def programs(v: Tensor) -> int:
    """Programs of the backward pass, each of which has sums of its own."""
    return int(triton.cdiv(len(v), _tiles(v.shape[1])["ROWS"] * REPEAT))


def backward(
    grads: Tensor, w: Tensor, more: Tensor | None, x: Tensor, v: Tensor, h: Tensor, of_v: Tensor, of_h: Tensor,
    sums: tuple[Tensor, Tensor] | None,
) -> None:  # fmt: skip
    """Fills the gradient of h and adds that of v.

    Without `more` this is the last layer. `sums` get those of w, for the last layer, and of the bias, by program.
    """
    of_w, of_bias = sums or (v, v)
    _backward[(programs(v),)](
        grads, w, v if more is None else more, x, v, h, of_v, of_h, of_w, of_bias, *v.shape, h.stride(0),
        LAST=more is None, SUMS=sums is not None, REPEAT=REPEAT, **_tiles(v.shape[1]),
    )  # fmt: skip


def finish(grads: Tensor, w: Tensor, more: Tensor, of_v: Tensor) -> None:
    """Adds the gradient of the first x to that of v."""
    tiles = _tiles(of_v.shape[1])
    _finish[(triton.cdiv(len(of_v), tiles["ROWS"]),)](grads, w, more, of_v, *of_v.shape, **tiles)
