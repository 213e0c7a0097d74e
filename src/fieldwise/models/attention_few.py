"""A layer of self-attention between few fields on a CPU: rows are the last dimension, so no product is small."""

from typing import Any, Final

import torch
from torch import Tensor

from fieldwise.models.attention import differentiable, plain, softmax_backward

WIDEST: Final = 8
"""Numbers per head up to which this layer is faster than operations of torch, with fewer than 16 fields and batches of
128 rows or more."""

_threshold_backward: Final = torch.ops.aten.threshold_backward
"""The gradient of ReLU, from that of its output and the output."""


def attend_few(x: Tensor, maps: Tensor) -> Tensor:
    """Self-attention with residual and ReLU: fields (before, F, B) to (after, F, B).

    `maps` (heads, 4, after / heads, before) are those of queries, keys, values and the residual. Products of a row's
    few fields are sums over the numbers of a head, or over fields, of products of whole batches.
    """
    found: Tensor = _AttendFew.apply(x, maps)  # type: ignore[no-untyped-call]
    return found


class _AttendFew(torch.autograd.Function):
    """The layer."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, maps: Tensor) -> Tensor:
        """(before, F, B) to (after, F, B)."""
        mapped = (maps.flatten(0, 2) @ x.flatten(1)).view(*maps.shape[:3], *x.shape[1:])
        query, key, value, residual = mapped.unbind(1)  # (heads, after / heads, F, B)
        weights = torch.softmax(_pairs(query, key), 2)
        out = _add_weighted(residual.clone(), weights.transpose(1, 2), value).relu_()
        ctx.save_for_backward(x, maps, mapped, weights, out)
        return out.flatten(0, 1)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """(after, F, B) to (before, F, B) and (heads, 4, after / heads, before)."""
        x, maps, mapped, weights, out = ctx.saved_tensors
        if torch.is_grad_enabled():
            again = plain(x.permute(2, 0, 1), maps).permute(1, 2, 0)
            return differentiable(again, x, maps, grads[0])
        query, key, value, _ = mapped.unbind(1)
        of_mapped = torch.zeros_like(mapped)
        of_query, of_key, of_value, of_residual = of_mapped.unbind(1)
        of_out = _threshold_backward(grads[0].reshape(out.shape), out, 0)
        of_residual.copy_(of_out)
        _add_weighted(of_value, weights, of_out)
        of_scores = _pairs(of_out, value)  # of weights, until the next line
        softmax_backward(of_scores, weights, 2, weights.dtype, grad_input=of_scores)
        _add_weighted(of_query, of_scores.transpose(1, 2), key)
        _add_weighted(of_key, of_scores, query)
        each, flat = maps.flatten(0, 2), of_mapped.flatten(0, 2).flatten(1)
        wanted = ctx.needs_input_grad[1]  # not in a gate's step
        of_maps = (flat @ x.flatten(1).t()).view(maps.shape) if wanted else None
        return (each.t() @ flat).view(x.shape), of_maps


def _pairs(one: Tensor, other: Tensor) -> Tensor:
    """The inner products of all pairs of fields, (heads, F, F, B), of two (heads, D, F, B)."""
    heads, _, fields, rows = one.shape
    found = one.new_empty(heads, fields, fields, rows)  # of this layout, whatever that of a gradient
    torch.mul(one[:, 0, :, None], other[:, 0, None], out=found)
    for number in range(1, one.shape[1]):
        found.addcmul_(one[:, number, :, None], other[:, number, None])
    return found


def _add_weighted(to: Tensor, weights: Tensor, parts: Tensor) -> Tensor:
    """Adds to (heads, D, F, B) the parts (heads, D, F', B) times their weights (heads, F', F, B)."""
    for field in range(parts.shape[2]):
        to.addcmul_(weights[:, None, field], parts[:, :, field, None])
    return to
