"""The orders of an epoch's rows, drawn while a GPU trains on those of the epoch before."""

from collections.abc import Callable
from threading import Thread

import torch
from torch import Tensor


class Ahead:
    """Draws each epoch's orders in a thread during the epoch before: the numbers that the epoch itself would draw.

    They must be the first draws of an epoch: one order of its training rows, then `times` of its validation rows.
    `seed` gives the seed of each epoch.
    """

    def __init__(self, rows: int, seed: Callable[[int], int], valid: int = 0, times: int = 0) -> None:
        self._rows, self._seed, self._valid, self._times = rows, seed, valid, times
        self._thread: Thread | None = None
        self._drawn: tuple[int, Tensor, Tensor, Tensor] | None = None

    def orders(self, epoch: int) -> tuple[Tensor | None, Tensor | None]:
        """The orders (rows,) and (times, valid) of an epoch if drawn; torch's generator then continues after them."""
        if self._thread is not None:
            self._thread.join()
        drawn, self._drawn = self._drawn, None
        self._thread = Thread(target=self._draw, args=(epoch + 1,))
        self._thread.start()
        if drawn is None or drawn[0] != epoch:
            return None, None
        torch.set_rng_state(drawn[3])
        return drawn[1], drawn[2]

    def _draw(self, epoch: int) -> None:
        own = torch.Generator().manual_seed(self._seed(epoch))
        order = _permutation(self._rows, own)
        valid = order.new_empty(self._times, self._valid)
        for row in valid:
            row.copy_(_permutation(self._valid, own))
        self._drawn = epoch, order, valid, own.get_state()


def _permutation(rows: int, generator: torch.Generator) -> Tensor:
    """The numbers of `torch.randperm` in four bytes each if they fit, which are drawn and copied faster."""
    return torch.randperm(rows, generator=generator, dtype=torch.int32 if rows < 2**31 else torch.int64)
