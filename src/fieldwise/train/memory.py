"""Memory of a stage: the most it took, on a GPU or resident on a CPU, and keeping what a step needs again."""

import ctypes
import platform
from typing import Final

import torch

from fieldwise.core.resident import forget_peak_resident, peak_resident

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # glibc's malloc.h
_KEPT: Final = 256 * 2**20
_LARGE: Final = 32 * 2**20
"""glibc's own upper bound; larger pieces, as tables are, go back to the system when they are freed."""


def keep_freed() -> None:
    """Keeps memory that a step frees for the next step, up to 256 MiB: fresh pages cost up to a tenth of a step.

    For glibc alone; elsewhere nothing happens.
    """
    if platform.libc_ver()[0] == "glibc":
        malloc = ctypes.CDLL(None)
        malloc.mallopt(_MMAP_THRESHOLD, _LARGE)
        malloc.mallopt(_TRIM_THRESHOLD, _KEPT)


def forget_peak() -> None:
    """Begins to measure anew; where the system cannot, the peak is that of the whole process."""
    if torch.cuda.is_available() and torch.cuda.max_memory_allocated():
        torch.cuda.reset_peak_memory_stats()
    forget_peak_resident()


def peak_memory() -> int:
    """Bytes at most since `forget_peak`."""
    if torch.cuda.is_available() and torch.cuda.max_memory_allocated():
        return int(torch.cuda.max_memory_allocated())
    return peak_resident()
