"""The loss of a batch, of which each process may have a part."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor
from torch.nn import functional

from fieldwise.data.batches import Batch
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

    The mean itself if this process has the whole batch.
    """
    if batch.is_whole:
        return functional.binary_cross_entropy_with_logits(logits, batch.labels)
    return functional.binary_cross_entropy_with_logits(logits, batch.labels, reduction="sum") / batch.rows
