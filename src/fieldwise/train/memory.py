"""Peak memory of a stage, allocated on a GPU or resident on a CPU."""

import torch

from fieldwise.core.resident import forget_peak_resident, peak_resident


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
