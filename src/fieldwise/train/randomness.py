"""Randomness is borrowed and given back here, and nowhere else."""

from collections.abc import Iterator
from contextlib import contextmanager
from zlib import crc32

import numpy as np
import torch


@contextmanager
def randomness(seed: int, what: str, epoch: int = 0, place: int = 0) -> Iterator[None]:
    """Seeds torch for a block from the task's seed, and restores its state afterwards.

    The draws depend on nothing but the arguments, so a resumed epoch draws what the first try drew. Trainings that
    follow each other under one name differ in their place; the first, at place 0, draws as one that is the only one.
    """
    entropy = [seed, crc32(what.encode()), epoch]
    sequence = np.random.SeedSequence([*entropy, place] if place else entropy)
    devices = [torch.cuda.current_device()] if torch.cuda.is_available() else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(int(sequence.generate_state(1)[0]))
        yield
