"""Kernels for heads that depend on fields only through sums of their maps (FM, the first layer of DeepFM)."""

from typing import Any, Final

import triton
import triton.language as tl
from torch import Tensor

ROWS: Final = 64
"""Rows of a batch per program."""
FIELDS: Final = 5
"""Fields per program."""
DOT: Final = "tf32x3"
"""Products of float32 on matrix units, in three parts of TF32: their results are those of float32."""
WARPS: Final = 2


@triton.jit
def _forward(
    weights, firsts, numbers, maps, sums, batch, fields, width, mapped, common,
    FIRST: tl.constexpr, ROWS: tl.constexpr, FIELDS: tl.constexpr, WIDTH: tl.constexpr, MAPPED: tl.constexpr,
    DOT: tl.constexpr,
):  # fmt: skip
    """The sums over some fields: of the maps, and of the squares of the first ones times -1/2.

    With FIRST, first-order weights are added to the squares.
    """
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column, out = tl.arange(0, WIDTH), tl.arange(0, MAPPED)
    there = row < batch
    total = tl.zeros((ROWS, MAPPED), tl.float32)
    squares = tl.zeros((ROWS,), tl.float32)
    for k in range(FIELDS):
        field = tl.program_id(1) * FIELDS + k
        known = there & (field < fields)
        number = tl.load(numbers + row * fields + field, mask=known, other=0).to(tl.int64)
        of_map = (column < width)[:, None] & (out < mapped)[None, :] & (field < fields)
        map_ = tl.load(maps + (field * width + column[:, None]) * mapped + out[None, :], mask=of_map, other=0.0)
        v = tl.load(weights + number[:, None] * width + column[None, :],
                    mask=known[:, None] & (column < width)[None, :], other=0.0)  # fmt: skip
        x = tl.dot(v, map_, input_precision=DOT)
        total += x
        x = tl.where((out < common)[None, :], x, 0.0)
        squares -= 0.5 * tl.sum(x * x, 1)
        if FIRST:
            squares += tl.load(firsts + number, mask=known, other=0.0)
    at = sums + (tl.program_id(1) * batch + row) * (mapped + 1)
    tl.store(at[:, None] + out[None, :], total, mask=there[:, None] & (out < mapped)[None, :])
    tl.store(at + mapped, squares, mask=there)


@triton.jit
def _pairs(parts, sums, logits, batch, mapped, PARTS: tl.constexpr, ROWS: tl.constexpr, MAPPED: tl.constexpr):
    """The sums over all parts, and the pairwise products: half the square of the sum, and the sum of half squares."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    out = tl.arange(0, MAPPED)
    there = row < batch
    inside = there[:, None] & (out < mapped)[None, :]
    total = tl.zeros((ROWS, MAPPED), tl.float32)
    rest = tl.zeros((ROWS,), tl.float32)
    for part in range(PARTS):
        at = (part * batch + row) * (mapped + 1)
        total += tl.load(parts + at[:, None] + out[None, :], mask=inside, other=0.0)
        rest += tl.load(parts + at + mapped, mask=there, other=0.0)
    tl.store(sums + (row * mapped)[:, None] + out[None, :], total, mask=inside)
    tl.store(logits + row, 0.5 * tl.sum(total * total, 1) + rest, mask=there)


@triton.jit
def _backward(
    weights, numbers, maps, grads, sums, of_places, of_maps, batch, fields, width, mapped, common,
    ROWS: tl.constexpr, FIELDS: tl.constexpr, WIDTH: tl.constexpr, MAPPED: tl.constexpr,
    PAIRS: tl.constexpr, PLACES: tl.constexpr, MAPS: tl.constexpr, DOT: tl.constexpr,
):  # fmt: skip
    """The gradients of the rows at places, and of the maps by block of the batch.

    `grads` are those of the sums, or with PAIRS those of the pairwise products of which `sums` are the sums.
    """
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column, out = tl.arange(0, WIDTH), tl.arange(0, MAPPED)
    there = row < batch
    inside = there[:, None] & (out < mapped)[None, :]
    if PAIRS:
        of_squares = tl.load(grads + row, mask=there, other=0.0)
        of_total = tl.load(sums + (row * mapped)[:, None] + out[None, :], mask=inside, other=0.0) * of_squares[:, None]
    else:
        at = grads + row * (mapped + 1)
        of_total = tl.load(at[:, None] + out[None, :], mask=inside, other=0.0)
        of_squares = tl.load(at + mapped, mask=there, other=0.0)
    for k in range(FIELDS):
        field = tl.program_id(1) * FIELDS + k
        known = there & (field < fields)
        number = tl.load(numbers + row * fields + field, mask=known, other=0).to(tl.int64)
        of_map = (column < width)[:, None] & (out < mapped)[None, :] & (field < fields)
        map_ = tl.load(maps + (field * width + column[:, None]) * mapped + out[None, :], mask=of_map, other=0.0)
        own = known[:, None] & (column < width)[None, :]
        v = tl.load(weights + number[:, None] * width + column[None, :], mask=own, other=0.0)
        x = tl.where((out < common)[None, :], tl.dot(v, map_, input_precision=DOT), 0.0)
        grad = of_total - of_squares[:, None] * x
        if PLACES:
            of_v = tl.dot(grad, tl.trans(map_), input_precision=DOT)
            tl.store(of_places + ((row * fields + field) * width)[:, None] + column[None, :], of_v, mask=own)
        if MAPS:
            of = tl.dot(tl.trans(v), grad, input_precision=DOT)
            start = of_maps + (tl.program_id(0) * fields + field) * width * mapped
            tl.store(start + column[:, None] * mapped + out[None, :], of, mask=of_map)


def _sizes(width: int, mapped: int) -> dict[str, Any]:
    wide, many = (max(16, triton.next_power_of_2(n)) for n in (width, mapped))
    return {"ROWS": ROWS, "FIELDS": FIELDS, "WIDTH": wide, "MAPPED": many, "DOT": DOT, "num_warps": WARPS}


def forward(weights: Tensor, numbers: Tensor, maps: Tensor, common: int) -> Tensor:
    """Sums over fields (B, K + 1) of rows at numbers (B, fields) times maps (fields, width, K)."""
    return _parts(weights, None, numbers, maps, common).sum(0)


def pairs(weights: Tensor, firsts: Tensor | None, numbers: Tensor, maps: Tensor) -> tuple[Tensor, Tensor]:
    """Pairwise products (B,) of mapped rows plus first-order weights, and the sums (B, K) over fields."""
    parts, (_, _, mapped) = _parts(weights, firsts, numbers, maps, maps.shape[2]), maps.shape
    batch, many = len(numbers), triton.next_power_of_2(mapped)
    sums, logits = weights.new_empty(batch, mapped), weights.new_empty(batch)
    _pairs[(triton.cdiv(batch, 32),)](parts, sums, logits, batch, mapped, PARTS=len(parts), ROWS=32, MAPPED=many)
    return logits, sums


def _parts(weights: Tensor, firsts: Tensor | None, numbers: Tensor, maps: Tensor, common: int) -> Tensor:
    """The sums by part of the fields, (parts, B, K + 1)."""
    batch, fields = numbers.shape
    _, width, mapped = maps.shape
    parts = triton.cdiv(fields, FIELDS)
    sums = weights.new_empty(parts, batch, mapped + 1)
    _forward[(triton.cdiv(batch, ROWS), parts)](
        weights, weights if firsts is None else firsts, numbers, maps, sums, batch, fields, width, mapped, common,
        FIRST=firsts is not None, **_sizes(width, mapped),
    )  # fmt: skip
    return sums


def backward(
    weights: Tensor, numbers: Tensor, maps: Tensor, common: int, grads: Tensor, of_places: bool, of_maps: bool,
    sums: Tensor | None = None,
) -> tuple[Tensor | None, Tensor | None]:  # fmt: skip
    """Gradients of the rows at places (B, fields, width) and of the maps, from those of the sums.

    With the `sums` of `pairs`, from those of the pairwise products (B,).
    """
    batch, fields = numbers.shape
    _, width, mapped = maps.shape
    blocks, parts = triton.cdiv(batch, ROWS), triton.cdiv(fields, FIELDS)
    places = weights.new_empty(batch, fields, width) if of_places else weights
    by_block = weights.new_empty(blocks, *maps.shape) if of_maps else weights
    _backward[(blocks, parts)](
        weights, numbers, maps, grads, grads if sums is None else sums, places, by_block, batch, fields, width, mapped,
        common, **_sizes(width, mapped), PAIRS=sums is not None, PLACES=of_places, MAPS=of_maps,
    )  # fmt: skip
    return places if of_places else None, by_block.sum(0) if of_maps else None
