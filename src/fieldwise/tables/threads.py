"""How many of a CPU's threads a training step is worth."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import torch
from torch import nn

from fieldwise.tables.row_factored import is_row_factored

SMALL: Final = 2**16
"""Ids a step: a step row by row that reads fewer is small operations one after the other."""


@contextmanager
def step_threads(model: nn.Module, ids: int) -> Iterator[None]:
    """While it lasts, as many threads as steps over so many ids are worth: one, or all that torch was given.

    Waking a second thread for each small operation costs more than it saves. The rule looks at no clock, so that the
    same training rounds alike wherever it runs.
    """
    given = torch.get_num_threads()
    if given == 1 or ids >= SMALL or not is_row_factored(model):
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(given)
