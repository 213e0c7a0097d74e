"""Memory of a stage: its peak, allocated on a GPU or resident on a CPU, and reuse of freed memory between steps."""

import ctypes
import platform
from typing import Final

import torch

from fieldwise.core.resident import forget_peak_resident, peak_resident

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # glibc's malloc.h
_KEPT: Final = 256 * 2**20
_LARGE: Final = 32 * 2**20
"""glibc's maximum for this option; larger allocations, such as tables, return to the system when freed."""


def keep_freed() -> None:
    """Keep up to 256 MiB of freed memory for the next step, because new pages cost up to a tenth of a step.

    Only with glibc; otherwise it does nothing.
    """
    if platform.libc_ver()[0] == "glibc":
        malloc = ctypes.CDLL(None)
        malloc.mallopt(_MMAP_THRESHOLD, _LARGE)
        malloc.mallopt(_TRIM_THRESHOLD, _KEPT)


def forget_peak() -> None:
    """Reset the peak. On systems that cannot reset it, the peak is that of the whole process."""
    if torch.cuda.is_available() and torch.cuda.max_memory_allocated():
        torch.cuda.reset_peak_memory_stats()
    forget_peak_resident()


def peak_memory() -> int:
    """Peak memory in bytes since `forget_peak`."""
    if torch.cuda.is_available() and torch.cuda.max_memory_allocated():
        return int(torch.cuda.max_memory_allocated())
    return peak_resident()
