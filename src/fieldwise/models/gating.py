"""Columns times a gate, for a step that changes only the gate."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from fieldwise.kernels.available import has_kernels


def times_gate(columns: Tensor, gate: Tensor) -> Tensor:
    """Constant columns (B, S) times a gate (S,), which is the only one to have a gradient."""
    if not (has_kernels(columns.device) and columns.dtype == gate.dtype == torch.float32):
        return columns * gate
    gated: Tensor = _Gated.apply(columns, gate)  # type: ignore[no-untyped-call]
    return gated


class _Gated(torch.autograd.Function):
    """The gradient of the gate in one pass over the batch: PyTorch stores the products before it adds them."""

    @staticmethod
    def forward(ctx: Any, columns: Tensor, gate: Tensor) -> Tensor:
        """(B, S) and (S,) to (B, S)."""
        ctx.save_for_backward(columns)
        return columns * gate

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, Tensor]:
        """(B, S) to (S,)."""
        from fieldwise.kernels.columns import dots

        (columns,) = ctx.saved_tensors
        return None, dots(columns.contiguous(), grads[0].float().contiguous())
