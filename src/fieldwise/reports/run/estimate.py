"""Values with the interval that the test rows and the seeds leave open."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, variance
from typing import Any, Final

WIDE: Final = 1.96
"""Standard errors on each side of a 95% interval."""


@dataclass(frozen=True)
class Estimate:
    """A value and its standard error, None if that is unknown."""

    value: float
    error: float | None = None

    @property
    def low(self) -> float:
        """Lower end of the 95% interval; the value itself if the error is unknown."""
        return self.value - WIDE * (self.error or 0.0)

    @property
    def high(self) -> float:
        """Upper end of the 95% interval."""
        return self.value + WIDE * (self.error or 0.0)

    @property
    def has_zero(self) -> bool:
        """Whether the interval of a difference contains 0."""
        return self.error is not None and self.low <= 0 <= self.high

    def text(self, sign: str = "") -> str:
        """The value with four decimals and its interval; `sign` is "+" for differences."""
        if self.error is None:
            return f"{self.value:{sign}.4f}"
        return f"{self.value:{sign}.4f} ({self.low:{sign}.4f} to {self.high:{sign}.4f})"

    def to_json(self) -> dict[str, Any]:
        """The value and both ends, for a page."""
        known = self.error is not None
        return {"value": self.value, "low": self.low if known else None, "high": self.high if known else None}


def over_seeds(values: Sequence[float], errors: Sequence[float | None]) -> Estimate:
    """The mean over seeds. Its error combines that of the test rows, which all seeds share, and that of the seeds."""
    known = [error for error in errors if error is not None]
    if len(known) < len(values):
        return Estimate(fmean(values))
    rows = fmean(error**2 for error in known)
    seeds = variance(values) / len(values) if len(values) > 1 else 0.0
    return Estimate(fmean(values), math.sqrt(rows + seeds))
