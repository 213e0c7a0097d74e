"""Memory of this process, as the operating system reports it, and reuse of freed memory."""

import ctypes
import platform
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

_STATUS: Final = Path("/proc/self/status")
_CLEAR: Final = Path("/proc/self/clear_refs")
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # glibc's malloc.h
_KEPT: Final = 256 * 2**20
_LARGE: Final = 32 * 2**20
"""glibc's maximum for this option; larger allocations, such as tables, return to the system when freed."""


def resident_memory() -> int:
    """Bytes resident now; the peak if only that is known (macOS), 0 if neither is (Windows)."""
    return _status("VmRSS") or _peak_of_process()


def peak_resident() -> int:
    """Peak bytes resident since `forget_peak_resident` or the process start; 0 if unknown (Windows)."""
    return _status("VmHWM") or _peak_of_process()


def forget_peak_resident() -> None:
    """Resets the peak on Linux; elsewhere the peak covers the whole process."""
    with suppress(OSError):
        _CLEAR.write_text("5", encoding="ascii")


def keep_freed() -> None:
    """Keeps up to 256 MiB of freed memory for the next step or batch: new pages cost up to a tenth of a training
    step, and two fifths of a prediction.

    Only with glibc; otherwise it does nothing.
    """
    if platform.libc_ver()[0] == "glibc":
        malloc = ctypes.CDLL(None)
        malloc.mallopt(_MMAP_THRESHOLD, _LARGE)
        malloc.mallopt(_TRIM_THRESHOLD, _KEPT)


def maxrss_bytes(maxrss: int, system: str) -> int:
    """`ru_maxrss` in bytes: macOS counts bytes, Linux and the BSDs count KiB."""
    return maxrss if system == "darwin" else maxrss * 1024


def _status(key: str) -> int:
    """A value of Linux's status file in bytes; 0 if there is none."""
    with suppress(OSError, StopIteration):
        lines = _STATUS.read_text(encoding="ascii").splitlines()
        return int(next(line for line in lines if line.startswith(key)).split()[1]) * 1024
    return 0


def _peak_of_process() -> int:
    try:
        import resource
    except ImportError:  # Windows
        return 0
    return maxrss_bytes(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, sys.platform)
