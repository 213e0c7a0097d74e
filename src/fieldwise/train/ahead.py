"""The order of an epoch's rows, drawn while a GPU trains on those of the epoch before."""

from collections.abc import Callable
from threading import Thread

import torch
from torch import Tensor


class Ahead:
    """Draws each epoch's order in a thread during the epoch before: the numbers that the epoch itself would draw.

    The order must be the first draw of an epoch. `seed` gives the seed of each.
    """

    def __init__(self, rows: int, seed: Callable[[int], int]) -> None:
        self._rows, self._seed = rows, seed
        self._thread: Thread | None = None
        self._drawn: tuple[int, Tensor, Tensor] | None = None

    def order(self, epoch: int) -> Tensor | None:
        """The order of an epoch if it was drawn; torch's generator then continues after it."""
        if self._thread is not None:
            self._thread.join()
        drawn, self._drawn = self._drawn, None
        self._thread = Thread(target=self._draw, args=(epoch + 1,))
        self._thread.start()
        if drawn is None or drawn[0] != epoch:
            return None
        torch.set_rng_state(drawn[2])
        return drawn[1]

    def _draw(self, epoch: int) -> None:
        own = torch.Generator().manual_seed(self._seed(epoch))
        self._drawn = epoch, torch.randperm(self._rows, generator=own), own.get_state()
