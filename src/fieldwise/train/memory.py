"""The most memory a stage took: allocated on a GPU, resident on a CPU."""

import resource
from contextlib import suppress
from pathlib import Path
from typing import Final

import torch

_STATUS: Final = Path("/proc/self/status")
_CLEAR: Final = Path("/proc/self/clear_refs")


def forget_peak() -> None:
    """Begins to measure anew; where the system cannot, the peak is that of the whole process."""
    if torch.cuda.is_available() and torch.cuda.max_memory_allocated():
        torch.cuda.reset_peak_memory_stats()
    with suppress(OSError):
        _CLEAR.write_text("5", encoding="ascii")


def peak_memory() -> int:
    """Bytes at most since `forget_peak`."""
    if torch.cuda.is_available() and torch.cuda.max_memory_allocated():
        return int(torch.cuda.max_memory_allocated())
    with suppress(OSError, StopIteration):
        lines = _STATUS.read_text(encoding="ascii").splitlines()
        return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
