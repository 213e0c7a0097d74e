"""The loss of a batch, of which each process may have a part."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from fieldwise.data.batches import Batch
from fieldwise.kernels.available import has_kernels
from fieldwise.processes.ranks import Ranks, acting, current
from fieldwise.processes.streams import shared


@contextmanager
def working_on(batch: Batch) -> Iterator[None]:
    """A context for a step on a batch. If every process has all of it, each takes the same step by itself."""
    if batch.is_whole and current().size > 1:
        with acting(Ranks()), shared():
            yield
    else:
        yield


def part_of_loss(logits: Tensor, batch: Batch) -> Tensor:
    """This process's part of the mean loss over a batch: the sum over all processes is the mean.

    The mean itself if this process has the whole batch. In float32, or in float64 if the logits are.
    """
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    if has_kernels(logits.device) and logits.dtype == torch.float32 and logits.shape == batch.labels.shape:
        loss: Tensor = _LogLoss.apply(logits, batch.labels, batch.rows)  # type: ignore[no-untyped-call]
        return loss
    labels = batch.labels.to(logits.dtype)
    if batch.is_whole:
        return functional.binary_cross_entropy_with_logits(logits, labels)
    return functional.binary_cross_entropy_with_logits(logits, labels, reduction="sum") / batch.rows


class _LogLoss(torch.autograd.Function):
    """The loss and its gradient in one kernel, which takes less time than the launches of several."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, labels: Tensor, total: int) -> Tensor:
        """(B,) to a scalar."""
        from fieldwise.kernels.loss import log_loss

        loss, grads = log_loss(logits.contiguous(), labels.contiguous(), total)
        ctx.save_for_backward(grads)
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        """A scalar to (B,)."""
        return ctx.saved_tensors[0] * grads[0], None, None
