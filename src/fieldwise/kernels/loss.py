"""The log loss with its gradient in one kernel."""

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _log_loss(logits, labels, grads, loss, count, total, BLOCK: tl.constexpr):
    """The sum over all rows divided by `total`, by one program in their order."""
    parts = tl.zeros((BLOCK,), tl.float32)
    start = 0
    while start < count:
        at = start + tl.arange(0, BLOCK)
        there = at < count
        x = tl.load(logits + at, mask=there, other=0.0)
        y = tl.load(labels + at, mask=there, other=0.0)
        small = tl.exp(-tl.abs(x))
        log = tl.where(small < 1e-3, small * (1 - 0.5 * small), tl.log(1 + small))  # of 1 + small
        parts += tl.where(there, tl.maximum(x, 0.0) - x * y + log, 0.0)
        click = tl.where(x >= 0, 1.0, small) / (1 + small)
        tl.store(grads + at, (click - y) / total, mask=there)
        start += BLOCK
    tl.store(loss, tl.sum(parts, 0) / total)


def log_loss(logits: Tensor, labels: Tensor, total: int) -> tuple[Tensor, Tensor]:
    """The sum of log losses of logits (B,), divided by `total`, and its gradient (B,)."""
    grads, loss = torch.empty_like(logits), logits.new_empty(())
    _log_loss[(1,)](logits, labels, grads, loss, len(logits), float(total), BLOCK=2048, num_warps=16)
    return loss, grads
