"""Seeding of torch; the only place that changes the global random state, which it restores."""

from collections.abc import Iterator
from contextlib import contextmanager
from zlib import crc32

import numpy as np
import torch

from fieldwise.processes.ranks import current
from fieldwise.processes.streams import apart


@contextmanager
def randomness(seed: int, what: str, epoch: int = 0, place: int = 0, *, own: bool = False) -> Iterator[None]:
    """Seed torch for a block from the task's seed, and restore its state afterwards.

    Random numbers depend only on the arguments, so a resumed epoch draws the same numbers. Consecutive trainings with
    the same name differ in their place; place 0 draws the same numbers as a single training. All processes draw the
    same; with `own`, each has its own numbers, except for what it draws from the shared stream.
    """
    sequence = _sequence(seed, what, epoch, place)
    devices = [torch.cuda.current_device()] if torch.cuda.is_available() else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(_first(sequence))
        ranks = current()
        if own and ranks.size > 1:
            each = np.random.SeedSequence(sequence.entropy, spawn_key=(ranks.rank,))
            with apart(_first(each)):
                yield
        else:
            yield


def seed_of(seed: int, what: str, epoch: int = 0, place: int = 0) -> int:
    """The seed that `randomness` gives torch in all processes."""
    return _first(_sequence(seed, what, epoch, place))


def _sequence(seed: int, what: str, epoch: int, place: int) -> np.random.SeedSequence:
    entropy = [seed, crc32(what.encode()), epoch]
    return np.random.SeedSequence([*entropy, place] if place else entropy)


def _first(sequence: np.random.SeedSequence) -> int:
    return int(sequence.generate_state(1)[0])
