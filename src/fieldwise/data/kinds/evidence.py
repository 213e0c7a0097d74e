"""How well groups of rows predict the label on rows that did not count them: the evidence for categories or bins."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

SMOOTHINGS: Final = (2.0, 20.0, 200.0)
"""Rows at the mean click rate that are added to each group; the best is used, for categories and bins alike."""


@dataclass(frozen=True, slots=True)
class Predicted:
    """Click rates that one half of the rows predicts for the other."""

    losses: NDArray[np.float64]
    """(rows,): log loss of each row."""
    rates: NDArray[np.float64]
    """(rows,): predicted click rate of each row."""

    @property
    def loss(self) -> float:
        """Mean log loss."""
        return float(self.losses.mean())

    def better_than(self, other: "Predicted") -> float:
        """Returns by how many standard errors the mean log loss is lower than the other's; negative if it is higher."""
        gains = other.losses - self.losses
        error = float(gains.std()) / max(1.0, len(gains)) ** 0.5
        return float(gains.mean()) / error if error > 0 else 0.0


def predict(groups: NDArray[np.int64], clicks: NDArray[np.float64]) -> Predicted:
    """Predicts the clicks of even rows from the odd rows and the reverse, by the smoothed click rate of each group."""
    size = int(groups.max(initial=0)) + 1
    counts, sums, means = np.empty_like(clicks), np.empty_like(clicks), np.empty_like(clicks)
    for half in (0, 1):
        seen, clicked, asked = groups[1 - half :: 2], clicks[1 - half :: 2], groups[half::2]
        counts[half::2] = np.bincount(seen, minlength=size)[asked]
        sums[half::2] = np.bincount(seen, clicked, minlength=size)[asked]
        means[half::2] = (clicked.sum() + 0.5) / (len(clicked) + 1)
    found = (_smoothed(counts, sums, means, clicks, smoothing) for smoothing in SMOOTHINGS)
    return min(found, key=lambda one: one.loss)


def _smoothed(
    counts: NDArray[np.float64],
    sums: NDArray[np.float64],
    means: NDArray[np.float64],
    clicks: NDArray[np.float64],
    smoothing: float,
) -> Predicted:
    rates = (sums + smoothing * means) / (counts + smoothing)
    return Predicted(-np.log(np.where(clicks > 0, rates, 1 - rates)), rates)


def auc(rates: NDArray[np.float64], clicks: NDArray[np.float64]) -> float:
    """Returns the area under the ROC curve; ties count half."""
    _, places = np.unique(rates, return_inverse=True)
    positive, total = np.bincount(places, clicks), np.bincount(places)
    negative = total - positive
    pairs = positive.sum() * negative.sum()
    below = np.cumsum(negative) - negative
    return float((positive * (below + negative / 2)).sum() / pairs) if pairs else 0.5
