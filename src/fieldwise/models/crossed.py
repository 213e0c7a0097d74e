"""Cross layers of DCN-V2 and the layer that reads the same rows, with kernels on a GPU."""

import math
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from fieldwise.kernels.available import has_all_kernels

WIDEST: Final = 4096
"""Most columns that the kernels take."""
CHUNKS: Final = 8
"""Parts of a batch whose gradients of a weight are computed side by side."""


def crosses_by_kernel(v: Tensor) -> bool:
    """Whether `Crosses` can run on v (B, S), and would pay: for training on a GPU."""
    return torch.is_grad_enabled() and v.shape[1] <= WIDEST and has_all_kernels(v.device)


def crossed(v: Tensor, layers: nn.ModuleList) -> Tensor:
    """The result (B, S) of cross layers x <- x + v * (W x + b), beginning with x = v."""
    x, in_place = v, torch.is_inference_mode_enabled()
    for layer in layers:
        h = layer(x)  # (B, S); a column that is 0 in v stays 0
        x = h.mul_(v).add_(x) if in_place else x + v * h
    return x


class Crosses:
    """Cross layers over v (B, S), and another layer `first` of v, whose result is known before theirs.

    Matrix products have the precision of autocast, all else is float32.
    """

    def __init__(self, v: Tensor, layers: nn.ModuleList, first: nn.Linear) -> None:
        low = torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else torch.float32
        weights = [weight for layer in (first, *layers) for weight in (layer.weight, layer.bias)]
        self._v, self._rest, self._of_v = v.float().contiguous(), weights[4:], _Partial()
        self._h, self.hidden = _First.apply(self._v, low, self._of_v, *weights[:4])  # type: ignore[no-untyped-call]

    def times(self, out: Tensor) -> Tensor:
        """The last layer's result times a vector (S,): (B,)."""
        constant = self._v.detach()
        product: Tensor = _Rest.apply(self._h, constant, out, self._of_v, *self._rest)  # type: ignore[no-untyped-call]
        return product


class _Partial:
    """Gradients of v, which `_Rest` leaves to `_First`."""

    grads: Tensor
    out: Tensor
    more: Tensor | None
    of_v: Tensor
    bias: Tensor | None


class _First(torch.autograd.Function):
    """One product for the first cross layer and the layer beside it, forward and backward."""

    @staticmethod
    def forward(ctx: Any, v: Tensor, low: torch.dtype, partial: _Partial, *weights: Tensor) -> tuple[Tensor, Tensor]:
        """(B, S) to (B, S + hidden) and (B, hidden)."""
        with torch.autocast("cuda", enabled=False):
            weight, bias = (torch.cat([weights[2 + kind], weights[kind]]).to(low) for kind in (0, 1))
            x = v.to(low)
            h = functional.linear(x, weight, bias)
        ctx.save_for_backward(x, weight)
        ctx.partial = partial
        return h, h[:, v.shape[1] :].float()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """(B, S + hidden), of which `_Rest` fills the first S, and (B, hidden) to (B, S) and the weights."""
        from fieldwise.kernels import cross

        (x, weight), partial, count = ctx.saved_tensors, ctx.partial, ctx.saved_tensors[0].shape[1]
        of_h, hidden = grads
        of_h[:, count:] = hidden
        more = of_h @ weight if partial.more is None else partial.more.addmm_(of_h, weight)
        cross.finish(partial.grads, partial.out, more, partial.of_v)
        if not any(ctx.needs_input_grad[3:]):
            return partial.of_v, *[None] * 6
        both = _of_weight(of_h, x)
        return partial.of_v, None, None, both[count:], hidden.sum(0), both[:count], partial.bias


class _Rest(torch.autograd.Function):
    """The other layers; the gradient of v goes to `_First`."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, v: Tensor, out: Tensor, partial: _Partial, *weights: Tensor) -> Tensor:
        """(B, S + hidden) to (B,)."""
        from fieldwise.kernels import cross

        out, x, of_product, saved = out.float().contiguous(), v, v, [h]
        with torch.autocast("cuda", enabled=False):
            for weight, bias in zip(*[iter(weight.to(h.dtype) for weight in weights)] * 2, strict=True):
                x, of_product = cross.forward(x, v, h, h.dtype != torch.float32)
                h = functional.linear(of_product, weight, bias)
                saved += [of_product, h, weight]
            dots = cross.last(x, v, h, out)
        ctx.save_for_backward(v, out, *saved)
        ctx.partial = partial
        return dots

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """(B,) to (B, S + hidden) and the weights."""
        from fieldwise.kernels import cross
        from fieldwise.kernels.columns import totals

        v, out, first, *saved = ctx.saved_tensors
        given, partial, train = grads[0].float().contiguous(), ctx.partial, ctx.needs_input_grad[2]
        layers = [(v, first, None), *zip(saved[::3], saved[1::3], saved[2::3], strict=True)]
        sums = v.new_empty(len(layers) + 1, cross.programs(v), v.shape[1]) if train else None
        of_v, more = torch.empty_like(v), None
        of_weights: list[Tensor] = []
        for place in reversed(range(len(layers))):
            x, h, weight = layers[place]
            of_h, own = torch.empty_like(h), None if sums is None else (sums[-1], sums[place])
            cross.backward(given, out, more, x, v, h, of_v, of_h, own)
            if weight is None:
                break
            more = of_h @ weight if more is None else more.addmm_(of_h, weight)
            of_weights = [_of_weight(of_h, x), *of_weights] if train else of_weights
        partial.grads, partial.out, partial.more, partial.of_v = given, out, more, of_v
        if sums is None:
            return of_h, *[None] * (2 * len(layers) + 1)
        partial.bias, *biases, of_out = totals(sums)
        found = [gradient for both in zip(of_weights, biases, strict=True) for gradient in both]
        return of_h, None, of_out, None, *found


def _of_weight(of_h: Tensor, x: Tensor) -> Tensor:
    """The gradient of a layer's weight. As one product over the batch, its result is too small to occupy a GPU."""
    chunks = math.gcd(len(x), CHUNKS)
    parts = of_h.unflatten(0, (chunks, -1)).transpose(1, 2) @ x.unflatten(0, (chunks, -1))
    total: Tensor = parts.sum(0, dtype=torch.float32)
    return total
