"""A layer of self-attention on a CPU with its own backward pass: no copies of heads, and the faster matrix products."""

from collections.abc import Iterator
from typing import Any, Final

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

FEWEST: Final = 16
"""Fields from which on this layer is faster than operations of torch."""
_NUMBERS: Final = 2**19
"""Attention weights of one head that are computed together: more leave the cache, and with fewer, threads wait."""


_threshold_backward: Final = torch.ops.aten.threshold_backward.grad_input
"""The gradient of ReLU, from that of its output and the output."""


def attend(x: Tensor, maps: Tensor, heads: int) -> Tensor:
    """Self-attention with residual and ReLU: fields (B, before, F) to (B, after, F).

    `maps` (4 after, before) are those of queries, keys, values and the residual. Fields are the last dimension, so that
    heads are slices, and products have the attention weights on the right, which takes two thirds of the time.
    """
    found: Tensor = _Attend.apply(x, maps, heads)  # type: ignore[no-untyped-call]
    return found


class _Attend(torch.autograd.Function):
    """The layer, a chunk of the batch at a time."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, maps: Tensor, heads: int) -> Tensor:
        """(B, before, F) to (B, after, F)."""
        rows, fields = x.shape[0], x.shape[2]
        out = x.new_empty(rows, len(maps) // 4, fields)
        kept: list[Tensor] = []
        for part, own in zip(_chunks(x), _chunks(out), strict=True):
            mapped = torch.bmm(maps.expand(len(part), -1, -1), part)  # (b, 4 after, F)
            kept.append(mapped)
            for query, key, value, residual, mixed in _heads(heads, *mapped.chunk(4, 1), own):
                weights = torch.softmax(torch.bmm(query.transpose(1, 2), key), 2)  # (b, F, F)
                torch.add(torch.bmm(value, weights.transpose(1, 2)), residual, out=mixed)
                kept.append(weights)
            own.relu_()
        ctx.heads = heads
        ctx.save_for_backward(x, maps, out, *kept)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None]:
        """(B, after, F) to (B, before, F) and (4 after, before)."""
        x, maps, out, *kept = ctx.saved_tensors
        saved, back, (of_out,) = iter(kept), maps.t(), grads
        of_x, of_maps = torch.empty_like(x), torch.zeros_like(maps)
        for part, own, of_own, of_part in zip(*map(_chunks, (x, out, of_out, of_x)), strict=True):
            mapped = next(saved)
            of_mapped = torch.empty_like(mapped)
            each = (*mapped.chunk(4, 1)[:3], *of_mapped.chunk(4, 1))
            _threshold_backward(of_own, own, 0, grad_input=each[-1])
            for query, key, value, of_query, of_key, of_value, of_mixed in _heads(ctx.heads, *each):
                weights = next(saved)
                of_value.copy_(torch.bmm(of_mixed, weights))
                of_weights = torch.bmm(of_mixed.transpose(1, 2), value)
                scores = torch._softmax_backward_data(of_weights, weights, 2, weights.dtype)
                of_query.copy_(torch.bmm(key, scores.transpose(1, 2)))
                of_key.copy_(torch.bmm(query, scores))
            of_part.copy_(torch.bmm(back.expand(len(part), -1, -1), of_mapped))
            if ctx.needs_input_grad[1]:  # not in a gate's step
                of_maps += torch.bmm(of_mapped, part.transpose(1, 2)).sum(0)
        return of_x, of_maps, None


def _chunks(x: Tensor) -> tuple[Tensor, ...]:
    """Splits the batch so that the attention weights of a head stay in the cache."""
    chunks: tuple[Tensor, ...] = x.split(max(1, _NUMBERS // x.shape[2] ** 2))
    return chunks


def _heads(heads: int, *parts: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """The parts (b, after, F) of each head."""
    return zip(*(part.chunk(heads, 1) for part in parts), strict=True)
