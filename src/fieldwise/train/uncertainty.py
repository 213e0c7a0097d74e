"""Standard errors of AUC and log loss, from the rows that they were measured on.

AUC: DeLong, DeLong and Clarke-Pearson (1988), in the form of placement values: for each click the fraction of other
rows that score below it, and for each other row the fraction of clicks above it.
"""

import numpy as np
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from fieldwise.core.records import Errors

Values = NDArray[np.float64]


def errors(full: Tensor, compact: Tensor, labels: Tensor) -> Errors | None:
    """Standard errors of two models on the same rows, and of their paired differences.

    None if a label has fewer than two rows, which say nothing about how much others would vary.
    """
    clicks = labels.cpu().numpy() > 0.5
    if min(clicks.sum(), (~clicks).sum()) < 2:
        return None
    placed = [placements(logits, clicks) for logits in (full, compact)]
    losses = [row_losses(logits, labels) for logits in (full, compact)]
    change = placed[1][0] - placed[0][0], placed[1][1] - placed[0][1]
    return Errors(
        full_auc=auc_error(*placed[0]),
        compact_auc=auc_error(*placed[1]),
        auc_change=auc_error(*change),
        full_log_loss=mean_error(losses[0]),
        compact_log_loss=mean_error(losses[1]),
        log_loss_change=mean_error(losses[1] - losses[0]),
    )


def placements(logits: Tensor, clicks: NDArray[np.bool_]) -> tuple[Values, Values]:
    """For each click the fraction of other rows below it, and for each other row that of clicks above; ties are half.

    The mean of either is the AUC.
    """
    scores = logits.cpu().numpy()
    ones, others = scores[clicks], scores[~clicks]
    return _below(ones, others), 1 - _below(others, ones)


def _below(values: Values, among: Values) -> Values:
    ordered = np.sort(among)
    below = np.searchsorted(ordered, values, "left") + np.searchsorted(ordered, values, "right")
    found: Values = below / (2 * len(among))
    return found


def auc_error(of_clicks: Values, of_others: Values) -> float:
    """Standard error of an AUC, or of a difference of AUCs, from its placement values."""
    return float(np.sqrt(of_clicks.var(ddof=1) / len(of_clicks) + of_others.var(ddof=1) / len(of_others)))


def row_losses(logits: Tensor, labels: Tensor) -> Values:
    """The cross-entropy of every row."""
    losses = functional.binary_cross_entropy_with_logits(logits.double(), labels.double(), reduction="none")
    found: Values = losses.cpu().numpy()
    return found


def mean_error(values: Values) -> float:
    """Standard error of a mean over rows."""
    return float(values.std(ddof=1) / np.sqrt(len(values)))
