"""Exact AUC and log loss."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from fieldwise.core.errors import DataError, TrainingError
from fieldwise.core.records import Metrics
from fieldwise.core.settings import check_argument
from fieldwise.data.batches import Batches
from fieldwise.data.store import Split
from fieldwise.processes.ranks import current

ROWS = 16_384
"""Rows per forward pass of an evaluation."""


def evaluate(model: nn.Module, rows: Batches | Split, gate: Tensor | None = None) -> Metrics:
    """AUC and log loss of a model, optionally gated, on rows. Raises if a prediction is not finite."""
    check_argument(model, nn.Module, "model", "fw.pretrain(task).model")
    check_argument(rows, (Batches, Split), "rows", "data.test")
    return metrics(*predictions(model, rows, gate))


def predictions(model: nn.Module, rows: Batches | Split, gate: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Logits and labels of all rows, in order. Raises if a logit is not finite."""
    batches = rows if isinstance(rows, Batches) else Batches(rows, next(model.parameters()).device)
    logits, labels = logits_of(model, batches, gate)
    wrong = logits[~torch.isfinite(logits)]
    if len(wrong):
        raise TrainingError(
            f"{len(wrong)} of {len(logits)} predictions are not finite, the first is {float(wrong[0])}. All must be "
            "finite: the model's training has diverged, or its weights are damaged."
        )
    return logits, labels


def metrics(logits: Tensor, labels: Tensor) -> Metrics:
    """AUC and log loss of predictions."""
    return Metrics(auc=auc(logits, labels), log_loss=log_loss(logits, labels), rows=len(labels))


@torch.no_grad()
def logits_of(model: nn.Module, batches: Batches, gate: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Logits and labels of all rows, in order; each of several processes predicts a part of them."""
    training = model.training
    model.eval()
    parts = [
        (model(batch.ids) if gate is None else model(batch.ids, gate), batch.labels) for batch in batches.ordered(ROWS)
    ]
    if not parts:  # a process without rows of its own: the type of the others' logits
        batch = batches.first()
        logits = model(batch.ids) if gate is None else model(batch.ids, gate)
        parts = [(logits[:0], batch.labels[:0])]
    model.train(training)
    logits, labels = (torch.cat([part[place] for part in parts]) for place in (0, 1))
    return current().rows(logits), current().rows(labels)


def auc(scores: Tensor, labels: Tensor) -> float:
    """The exact area under the ROC curve; pairs with equal scores count as one half."""
    values, order = torch.sort(scores)
    _, counts = torch.unique_consecutive(values, return_counts=True)
    ends = counts.cumsum(0)
    clicks_until = torch.cat([counts.new_zeros(1), labels[order].long().cumsum(0)[ends - 1]])
    clicks = clicks_until.diff()  # per group of equal scores
    others = counts - clicks
    pairs = int(clicks.sum()) * int(others.sum())
    if pairs == 0:
        raise DataError("AUC needs rows of both labels; all labels are equal. Give more or other rows.")
    won_twice = (clicks * (2 * (others.cumsum(0) - others) + others)).sum()
    return int(won_twice) / (2 * pairs)


def log_loss(logits: Tensor, labels: Tensor) -> float:
    """The mean binary cross-entropy, computed in float64."""
    return float(functional.binary_cross_entropy_with_logits(logits.double(), labels.double()))
