"""The number of CPU threads for a training step."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import torch
from torch import nn

from fieldwise.tables.row_factored import is_row_factored

SMALL: Final = 2**16
"""Ids per step; a row-factored step with fewer is a sequence of small operations."""


@contextmanager
def step_threads(model: nn.Module, ids: int) -> Iterator[None]:
    """A context with one thread for small row-factored steps, else with torch's current number of threads.

    For small operations, a second thread costs more than it saves. The rule measures no time, so that the same training
    rounds the same on every machine.
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
