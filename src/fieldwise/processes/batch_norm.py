"""Batch normalization over the batches of all processes. Torch's SyncBatchNorm does the same, but only on GPUs."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from fieldwise.processes.ranks import current


@contextmanager
def norms_over_ranks(model: nn.Module) -> Iterator[None]:
    """A context in which a model's batch normalizations use the statistics of all processes while training."""
    found = [m for m in model.modules() if isinstance(m, _BatchNorm)] if current().size > 1 else []
    kinds = [type(module) for module in found]
    for module, kind in zip(found, kinds, strict=True):
        module.__class__ = type(f"{kind.__name__}OverRanks", (_OverRanks, kind), {})
    try:
        yield
    finally:
        for module, kind in zip(found, kinds, strict=True):
            module.__class__ = kind


class _OverRanks(_BatchNorm):
    """A batch normalization whose statistics are those of all processes while training."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002, the name of torch
        """Normalizes (B, C, ...)."""
        if not self.training or current().size == 1:
            return super().forward(input)
        self._check_input_dim(input)  # type: ignore[no-untyped-call]
        normal: Tensor
        normal, mean, square, count = _Normalize.apply(input, self.weight, self.bias, self.eps)  # type: ignore[no-untyped-call]
        if self.running_mean is not None and self.running_var is not None:
            assert self.num_batches_tracked is not None
            self.num_batches_tracked.add_(1)
            share = 1 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
            with torch.no_grad():
                self.running_mean.lerp_(mean, share)
                self.running_var.lerp_(square * (count / (count - 1)), share)
        return normal


class _Normalize(torch.autograd.Function):
    """Normalization by the mean and variance over all processes, of which each has at least one row."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """(B, C, ...) to the normalized input, and the means (C,), variances (C,) and count ()."""
        own = x.to(torch.promote_types(x.dtype, torch.float32))
        axes = [axis for axis in range(x.dim()) if axis != 1]
        square, mean = torch.var_mean(own, axes, correction=0)
        count = mean.new_full((1,), x.numel() / x.shape[1])
        each = current().stacked(torch.cat([count, mean, square]))  # (ranks, 1 + 2 C)
        counts, means, squares = each.split([1, len(mean), len(mean)], 1)
        total = counts.sum()
        mean = (counts * means).sum(0) / total
        square = (counts * (squares + (means - mean).square())).sum(0) / total
        scale = torch.rsqrt(square + eps)
        normal = (own - _along(mean, x)) * _along(scale, x)
        ctx.save_for_backward(normal, scale, weight, total)
        ctx.axes = axes
        out = normal if weight is None else normal * _along(weight, x)
        out = out if bias is None else out + _along(bias, x)
        ctx.mark_non_differentiable(mean, square, total)
        return out.to(x.dtype), mean, square, total

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor | None, Tensor | None, None]:
        """The gradient of the input uses sums over all processes; those of the weights are this process's part."""
        normal, scale, weight, total = ctx.saved_tensors
        grad = grads[0].to(normal.dtype)
        sums, products = grad.sum(ctx.axes), (grad * normal).sum(ctx.axes)
        both = current().total(torch.stack([sums, products])) / total
        scale = scale if weight is None else scale * weight
        inner = (grad - _along(both[0], grad) - normal * _along(both[1], grad)) * _along(scale, grad)
        return inner.to(grads[0].dtype), None if weight is None else products, None if weight is None else sums, None


def _along(values: Tensor, x: Tensor) -> Tensor:
    """Values (C,) in a shape that multiplies x (B, C, ...)."""
    return values.view(1, -1, *[1] * (x.dim() - 2))
