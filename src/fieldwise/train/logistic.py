"""Logistic regression on encoded rows: one weight per id, fitted exactly, with the L2 strength of best validation.

The penalty is l2 / 2 times the sum of squared weights, added to the sum of the rows' losses; a strength is therefore
the precision of a normal prior. L-BFGS on all rows, scaled by the diagonal of the Hessian; nothing is random.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from fieldwise.core.schema import PADDING, Schema
from fieldwise.data.store import Split
from fieldwise.tables.deterministic_sum import sums

STRENGTHS: Final = (1000.0, 100.0, 10.0, 1.0, 0.1)
"""L2 strengths that are tried in this order, until validation log loss gets worse."""
MAX_IDS: Final = 2**26
"""Training rows with more ids than this are thinned evenly, so that a fit takes seconds."""
ITERATIONS: Final = 50
"""Maximum iterations per strength."""
_CHUNK: Final = 2**21
"""Ids per chunk of a pass."""


@dataclass(frozen=True)
class Logistic:
    """A fitted logistic regression."""

    schema: Schema
    weights: Tensor
    """One per id of every field, one for padding, which is 0, and the bias."""
    l2: float
    rows: int
    """Training rows that it used."""

    def logits(self, split: Split) -> Tensor:
        """Logits of all rows."""
        rows = _Rows(self.schema, split, self.weights.device)
        return torch.cat([chunk.logits(self.weights) for chunk in rows.chunks()])


def fit_logistic(schema: Schema, train: Split, valid: Split, device: torch.device) -> Logistic:
    """Fits one regression per L2 strength, and returns the one with the best validation log loss."""
    train = thinned(train, MAX_IDS)
    rows = _Rows(schema, train, device)
    weights = _constant(rows)
    best: tuple[float, Logistic] | None = None
    for strength in STRENGTHS:
        weights = _fit(rows, weights, strength)
        found = Logistic(schema, weights, strength, len(train))
        labels = torch.from_numpy(np.asarray(valid.labels)).to(device, torch.float64)
        loss = float(functional.binary_cross_entropy_with_logits(found.logits(valid), labels))
        if best is not None and loss >= best[0]:
            break
        best = loss, found
    assert best is not None
    return best[1]


def thinned(split: Split, ids: int) -> Split:
    """Evenly spaced rows of a split, with at most this many ids in total."""
    most = max(2, ids // split.ids.shape[1])
    if len(split) <= most:
        return split
    places = np.linspace(0, len(split) - 1, most).astype(np.int64)
    return Split(split.ids[places], split.labels[places])


@dataclass(frozen=True)
class _Chunk:
    """Some rows: the index of the weight of each id, and what each is multiplied by if rows have several values."""

    places: Tensor
    scales: Tensor | None
    labels: Tensor

    def logits(self, weights: Tensor) -> Tensor:
        found = weights.index_select(0, self.places.flatten()).view(self.places.shape)
        total = (found if self.scales is None else found * self.scales).sum(1)
        return total + weights[-1]

    def gradient(self, slopes: Tensor, count: int) -> Tensor:
        """Sums the slopes of the rows per weight; the last weight is the bias."""
        each = slopes[:, None].expand(self.places.shape)
        each = (each if self.scales is None else each * self.scales).flatten()
        if each.is_cuda:
            found = sums(each[:, None], self.places.flatten(), count)[:, 0]
        else:
            found = torch.bincount(self.places.flatten(), each, count)
        found[-2], found[-1] = 0.0, slopes.sum()
        return found


class _Rows:
    """A split as chunks of weight indices."""

    def __init__(self, schema: Schema, split: Split, device: torch.device) -> None:
        self.count = sum(schema.cardinalities) + 2
        starts = np.cumsum([0, *schema.cardinalities[:-1]])
        self._starts = np.repeat(starts, schema.lengths).astype(np.int32)
        self._owners = np.repeat(np.arange(len(schema)), schema.lengths)
        self._several = max(schema.lengths) > 1
        self._split, self._device = split, device
        self._kept: list[_Chunk] = []

    def __len__(self) -> int:
        return len(self._split)

    def chunks(self) -> Iterator[_Chunk]:
        """Yields all rows; the tensors are kept for the next pass."""
        if not self._kept:
            each = max(1, _CHUNK // len(self._starts))
            self._kept = [self._chunk(start, start + each) for start in range(0, len(self), each)]
        return iter(self._kept)

    def _chunk(self, start: int, end: int) -> _Chunk:
        ids = np.asarray(self._split.ids[start:end])
        places = np.where(ids == PADDING, self.count - 2, ids + self._starts)
        scales = None
        if self._several:
            known = (ids != PADDING).astype(np.float64)
            firsts = np.flatnonzero(np.diff(self._owners, prepend=-1))
            scales = known / np.maximum(1, np.add.reduceat(known, firsts, axis=1))[:, self._owners]
        labels = torch.from_numpy(np.asarray(self._split.labels[start:end], np.float64))
        return _Chunk(
            torch.from_numpy(places.astype(np.int32)).to(self._device),
            None if scales is None else torch.from_numpy(scales).to(self._device),
            labels.to(self._device),
        )


def _constant(rows: _Rows) -> Tensor:
    """The weights of a constant prediction: the click rate."""
    clicks = sum(float(chunk.labels.sum()) for chunk in rows.chunks())
    weights = torch.zeros(rows.count, dtype=torch.float64, device=next(rows.chunks()).labels.device)
    rate = (clicks + 0.5) / (len(rows) + 1)
    weights[-1] = float(np.log(rate / (1 - rate)))
    return weights


def _fit(rows: _Rows, start: Tensor, strength: float) -> Tensor:
    """The weights for one strength, beginning from others."""
    rate = float(torch.sigmoid(start[-1]))
    counts = torch.stack([c.gradient(torch.ones_like(c.labels), rows.count) for c in rows.chunks()]).sum(0)
    scale = (counts * rate * (1 - rate) + strength).div(len(rows)).sqrt()  # the Hessian's diagonal at the constant
    scaled = (start * scale).requires_grad_()
    optimizer = torch.optim.LBFGS(
        [scaled], max_iter=ITERATIONS, tolerance_grad=1e-6, tolerance_change=1e-6, line_search_fn="strong_wolfe"
    )

    def loss() -> float:
        weights = scaled.detach() / scale
        free = torch.cat([weights[:-1], weights.new_zeros(1)])  # the bias has no penalty
        total, gradient = 0.5 * strength * float(free.square().sum()), strength * free
        for chunk in rows.chunks():
            logits = chunk.logits(weights)
            total += float(functional.binary_cross_entropy_with_logits(logits, chunk.labels, reduction="sum"))
            gradient += chunk.gradient(torch.sigmoid(logits) - chunk.labels, rows.count)
        scaled.grad = gradient / scale / len(rows)
        return total / len(rows)

    optimizer.step(loss)
    return (scaled.detach() / scale).clone()
