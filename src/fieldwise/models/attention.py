"""A layer of self-attention on a CPU with its own backward pass: no copies of heads, and the faster matrix products."""

from typing import Any, Final

import torch
from torch import Tensor
from torch.nn import functional

FEWEST: Final = 16
"""Fields from which on this layer is faster than operations of torch."""
_NUMBERS: Final = 3 * 2**18
"""Attention weights that are computed together: more leave the cache, and with fewer, threads wait."""
_LANES: Final = 8
"""Small matrix products are faster with multiples of this many fields: 40 take 0.7 times as long as 39."""

_threshold_backward: Final = torch.ops.aten.threshold_backward.grad_input
"""The gradient of ReLU, from that of its output and the output."""
softmax_backward: Final = torch.ops.aten._softmax_backward_data.out
"""The gradient of a softmax, from that of its output and the output."""


def padding(fields: int) -> int:
    """Fields of zeros that make products faster; none if they would be more than an eighth."""
    more = -fields % _LANES
    return more if 8 * more <= fields else 0


def attend(x: Tensor, maps: Tensor, fields: int) -> Tensor:
    """Self-attention with residual and ReLU: fields (B, before, F) to (B, after, F).

    `maps` (heads, 4, after / heads, before) are those of queries, keys, values and the residual. Fields are the last
    dimension, so that heads are rows of a batch, and products have the attention weights on the right, which takes two
    thirds of the time. Whatever follows the first `fields` is padding: zeros, to which no field attends, also in the
    result.
    """
    found: Tensor = _Attend.apply(x, maps, fields)  # type: ignore[no-untyped-call]
    return found


class _Attend(torch.autograd.Function):
    """The layer, a chunk of the batch at a time."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, maps: Tensor, fields: int) -> Tensor:
        """(B, before, F) to (B, after, F)."""
        heads, each = len(maps), maps.flatten(0, 2)
        out = x.new_empty(x.shape[0], len(each) // 4, x.shape[2])
        kept: list[Tensor] = []
        for part, own in zip(*_chunks(heads, x, out), strict=True):
            mapped = torch.bmm(each.expand(len(part), -1, -1), part)  # (b, 4 after, F)
            query, key, value, residual = _parts(mapped, heads)  # (b heads, after / heads, F)
            scores = torch.bmm(query.transpose(1, 2), key)  # (b heads, F, F)
            scores[:, :, fields:] = -torch.inf
            weights = torch.softmax(scores, 2)
            torch.baddbmm(residual, value, weights.transpose(1, 2), out=own.view(residual.shape))
            own.relu_()
            own[:, :, fields:] = 0
            kept += mapped, weights
        ctx.save_for_backward(x, maps, out, *kept)
        ctx.fields = fields
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        """(B, after, F) to (B, before, F) and (heads, 4, after / heads, before)."""
        x, maps, out, *kept = ctx.saved_tensors
        if torch.is_grad_enabled():
            again = plain(x[:, :, : ctx.fields], maps)
            padded = functional.pad(again, (0, x.shape[2] - ctx.fields))
            return *differentiable(padded, x, maps, grads[0]), None
        saved, heads, each = iter(kept), len(maps), maps.flatten(0, 2)
        of_x, of_maps = x.new_empty(x.shape), torch.zeros_like(each)
        for part, own, of_own, of_part in zip(*_chunks(heads, x, out, grads[0], of_x), strict=True):
            of_mapped = _of_mapped(next(saved), next(saved), own, of_own, heads)
            torch.bmm(each.t().expand(len(part), -1, -1), of_mapped, out=of_part)
            if ctx.needs_input_grad[1]:  # not in a gate's step
                of_maps += torch.bmm(of_mapped, part.transpose(1, 2)).sum(0)
        return of_x, of_maps.view(maps.shape), None


def plain(x: Tensor, maps: Tensor) -> Tensor:
    """The layer without padding, by operations that can be differentiated any number of times."""
    query, key, value, residual = torch.einsum("hpdc,bcf->pbhdf", maps, x)
    weights = torch.softmax(torch.einsum("bhdf,bhdg->bhfg", query, key), 3)
    return torch.relu(torch.einsum("bhfg,bhdg->bhdf", weights, value) + residual).flatten(1, 2)


def differentiable(out: Tensor, x: Tensor, maps: Tensor, of_out: Tensor) -> tuple[Tensor | None, Tensor | None]:
    """The gradients of `x` and `maps`, where they are wanted, that can be differentiated again."""
    wanted = [tensor for tensor in (x, maps) if tensor.requires_grad]
    found = iter(torch.autograd.grad(out, wanted, of_out, create_graph=True))
    return next(found) if x.requires_grad else None, next(found) if maps.requires_grad else None


def _of_mapped(mapped: Tensor, weights: Tensor, own: Tensor, of_own: Tensor, heads: int) -> Tensor:
    """The gradient of queries, keys, values and residual (b, 4 after, F), from that of the result (b, after, F)."""
    of_mapped = torch.empty_like(mapped)
    query, key, value, _ = _parts(mapped, heads)
    of_query, of_key, of_value, of_mixed = _parts(of_mapped, heads)
    _threshold_backward(of_own.reshape(of_mixed.shape), own.view(of_mixed.shape), 0, grad_input=of_mixed)
    of_value.copy_(torch.bmm(of_mixed, weights))
    of_scores = torch.bmm(of_mixed.transpose(1, 2), value)  # of weights, until the next line
    softmax_backward(of_scores, weights, 2, weights.dtype, grad_input=of_scores)
    of_query.copy_(torch.bmm(key, of_scores.transpose(1, 2)))
    of_key.copy_(torch.bmm(query, of_scores))
    return of_mapped


def _parts(mapped: Tensor, heads: int) -> tuple[Tensor, ...]:
    """Four slices (b heads, after / heads, F) of (b, 4 after, F)."""
    return mapped.view(len(mapped) * heads, mapped.shape[1] // heads, mapped.shape[2]).chunk(4, 1)


def _chunks(heads: int, *batches: Tensor) -> list[tuple[Tensor, ...]]:
    """Splits batches so that the attention weights of a chunk stay in the cache."""
    rows = max(1, _NUMBERS // (heads * batches[0].shape[2] ** 2))
    return [batch.split(rows) for batch in batches]
