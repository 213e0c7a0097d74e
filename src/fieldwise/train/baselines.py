"""The baselines of a run: a constant, a logistic regression, and every field by itself."""

import time
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from fieldwise.core.baselines import BaselineRecord, SingleField
from fieldwise.core.records import Metrics
from fieldwise.core.schema import PADDING, Schema
from fieldwise.data.store import Dataset, Split
from fieldwise.train.evaluate import auc, log_loss, metrics
from fieldwise.train.logistic import fit_logistic
from fieldwise.train.uncertainty import auc_error, mean_error, placements, row_losses

PRIOR = 1.0
"""Rows at the overall click rate that are added to the rows of each id."""


def measure_baselines(data: Dataset, device: torch.device) -> BaselineRecord:
    """Fits and tests the baselines of a dataset."""
    started = time.perf_counter()
    splits = {"train": data.train, "valid": data.valid, "test": data.test}
    clicks = {name: int(np.asarray(split.labels).sum(dtype=np.int64)) for name, split in splits.items()}
    rate = clicks["train"] / len(data.train)
    labels = _labels(data.test)
    constant = torch.full((len(labels),), float(np.log(rate / (1 - rate))), dtype=torch.float64)
    fitted = fit_logistic(data.schema, data.train, data.valid, device)
    logits = fitted.logits(data.test).cpu()
    enough = min(clicks["test"], len(labels) - clicks["test"]) > 1
    return BaselineRecord(
        rows={name: len(split) for name, split in splits.items()},
        clicks=clicks,
        constant=Metrics(auc=0.5, log_loss=log_loss(constant, labels), rows=len(labels)),
        logistic=metrics(logits, labels),
        logistic_valid=metrics(fitted.logits(data.valid).cpu(), _labels(data.valid)),
        l2=fitted.l2,
        logistic_rows=fitted.rows,
        auc_error=auc_error(*placements(logits, labels.numpy() > 0.5)) if enough else None,
        log_loss_error=mean_error(row_losses(logits, labels)) if enough else None,
        fields=[
            SingleField(name=name, auc=auc(scores, labels))
            for name, scores in zip(data.schema.names, field_scores(data.schema, data.train, data.test), strict=True)
        ],
        seconds=time.perf_counter() - started,
    )


def field_scores(schema: Schema, train: Split, rows: Split) -> Iterator[Tensor]:
    """Yields for each field the click rate that its value has in the training rows, for each of some rows.

    Several values count as their mean.
    """
    labels = np.asarray(train.labels, np.float64)
    overall, start = float(labels.mean()), 0
    for cardinality, length in zip(schema.cardinalities, schema.lengths, strict=True):
        ids, new = (np.asarray(split.ids[:, start : start + length]) + 1 for split in (train, rows))  # padding is 0
        start += length
        counts = np.bincount(ids.ravel(), minlength=cardinality + 1)
        clicks = np.bincount(ids.ravel(), np.repeat(labels, length), cardinality + 1)
        rates = (clicks + PRIOR * overall) / (counts + PRIOR)
        known = new != PADDING + 1
        yield torch.from_numpy((rates[new] * known).sum(1) / np.maximum(1, known.sum(1)))


def _labels(split: Split) -> Tensor:
    return torch.from_numpy(np.array(split.labels, np.float64))
