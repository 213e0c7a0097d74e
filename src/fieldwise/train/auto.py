"""Batch size and patience that follow from the rows, where the user sets neither.

An epoch gets about 256 steps, in batches of 64 to 2,048 rows: with 2,048 rows per batch, 20,000 rows are 8 steps per
epoch, and early stopping compares epochs that learned nothing. A batch has at least one row of the rarer label on
average. Patience covers at least 128 steps. Measured in docs/log.md.
"""

import math
from typing import Final

STEPS: Final = 256
"""Steps per epoch to aim for."""
BATCHES: Final = (64, 2048)
"""Smallest and largest batch."""
PATIENT_STEPS: Final = 128
"""Steps that patience covers at least."""
PATIENCE: Final = (2, 10)
"""Smallest and largest patience."""


def batch_for(rows: int, clicks: float) -> int:
    """Rows per step, a power of two: the largest for about 256 steps, but with one row of the rarer label."""
    rarer = max(1.0, min(clicks, rows - clicks))
    steps = math.floor(math.log2(max(1, rows / STEPS)))
    both_labels = math.ceil(math.log2(max(1, rows / rarer)))
    least, most = BATCHES
    return min(most, max(least, 1 << max(steps, both_labels)))


def patience_for(rows: int, batch: int) -> int:
    """Epochs without a better validation AUC before training stops."""
    least, most = PATIENCE
    return min(most, max(least, math.ceil(PATIENT_STEPS / math.ceil(max(1, rows) / batch))))
