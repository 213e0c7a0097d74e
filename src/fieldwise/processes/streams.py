"""Random numbers of several processes: one stream that all share, and one of its own for each.

Shuffles and random gates draw from the shared stream, so that all processes draw the same; everything else, such as
dropout, draws from torch's global generators, which differ between processes. One process has one stream for both.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

_shared: list[Tensor] | None = None
"""States of the shared stream's generators, while streams are apart."""


@contextmanager
def apart(seed: int) -> Iterator[None]:
    """A context in which the current stream is the shared one, and the process's own begins at a seed."""
    global _shared
    before, _shared = _shared, _states()
    torch.manual_seed(seed)
    try:
        yield
    finally:
        _shared = before


@contextmanager
def shared() -> Iterator[None]:
    """A context that draws from the shared stream."""
    global _shared
    if _shared is None:
        yield
        return
    own = _states()
    _restore(_shared)
    try:
        yield
    finally:
        _shared = _states()
        _restore(own)


def _states() -> list[Tensor]:
    return [torch.get_rng_state(), *([torch.cuda.get_rng_state()] if torch.cuda.is_initialized() else [])]


def _restore(states: list[Tensor]) -> None:
    torch.set_rng_state(states[0])
    for state in states[1:]:
        torch.cuda.set_rng_state(state)
