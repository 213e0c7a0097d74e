"""Chooses how many training rows a value needs to have an id of its own, for `min_count = "auto"`.

One logistic regression per candidate learns from the training rows until its validation loss stops improving, without a
penalty, as an embedding table does; values below the candidate share `unknown`. A candidate above 1 is chosen if its
validation loss is lower by more than the standard error of the difference. Everything is computed from the encoded
rows, so every engine chooses the same.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from fieldwise.core.schema import PADDING, UNKNOWN, Schema
from fieldwise.data.encoder import Encoder
from fieldwise.data.sharded import ShardedArray
from fieldwise.data.store import Split
from fieldwise.data.vocabulary import Vocabulary

CANDIDATES: Final = (1, 2, 5, 10, 20)
FEW: Final = 100
"""With fewer validation rows of one label than this, nothing can be chosen, and every value keeps its id."""
MAX_IDS: Final = 2**22
"""Training rows with more ids than this are thinned evenly; how many rows a value needs does not depend on the rest."""
MAX_VALID: Final = 2**18
"""Maximum validation rows; more are thinned evenly."""
BATCH: Final = 256
EPOCHS: Final = 8
RATE: Final = 0.01
"""Learning rate of Adam."""

Floats = NDArray[np.float64]


def choose_min_count(schema: Schema, train: Split, valid: Split, fields: Sequence[int]) -> int:
    """Returns the candidate for these fields; 1 if validation rows do not clearly prefer another."""
    clicks = int(np.asarray(valid.labels).sum(dtype=np.int64))
    if min(clicks, len(valid) - clicks) < FEW:
        return 1
    places = _Places(schema, train, fields)
    candidates = places.different(CANDIDATES)
    if len(candidates) == 1:
        return 1
    losses = _Regressions(places, candidates).fit(train, valid)
    best = int(losses.mean(0).argmin())
    gain = losses[:, 0] - losses[:, best]
    clear = gain.mean() > gain.std(ddof=1) / np.sqrt(len(gain))
    return candidates[best] if clear else 1


def limited(encoder: Encoder, fields: Sequence[int], min_count: int) -> Encoder:
    """Returns the encoder without the rare values of some fields; the ids of all others stay."""
    kept = list(encoder.fields)
    for index in fields:
        known = kept[index].vocabulary
        count = pc.sum(pc.greater_equal(known.counts, min_count)).as_py() or 0
        rule = kept[index].rule.model_copy(update={"min_count": min_count})
        shorter = Vocabulary(known.values.slice(0, count), known.counts.slice(0, count))  # most frequent first
        kept[index] = replace(kept[index], rule=rule, vocabulary=shorter)
    return Encoder(kept)


def limit_ids(ids: NDArray[np.int32], schema: Schema) -> None:
    """Maps ids that are no longer in the schema to `unknown`, in place."""
    limits = np.repeat(schema.cardinalities, schema.lengths)
    ids[ids >= limits] = UNKNOWN


def thinned(ids: NDArray[np.int32] | ShardedArray, labels: NDArray[np.uint8] | ShardedArray, most: int) -> Split:
    """Returns at most this many rows, evenly spaced."""
    if len(labels) <= most:
        return Split(np.asarray(ids), np.asarray(labels))
    rows = np.linspace(0, len(labels) - 1, most).astype(np.int64)
    return Split(ids[rows], labels[rows])


class _Places:
    """The weight of each id: one index for all fields, and one for padding."""

    def __init__(self, schema: Schema, train: Split, fields: Sequence[int]) -> None:
        self.count = sum(schema.cardinalities) + 1
        starts = np.cumsum([0, *schema.cardinalities[:-1]])
        self._starts = np.repeat(starts, schema.lengths)
        counts = np.bincount(self.of(np.asarray(train.ids)).ravel(), minlength=self.count)
        self._unknown = np.append(np.repeat(starts, schema.cardinalities), self.count - 1)
        self._rows = np.full(self.count, np.iinfo(np.int64).max)
        for field in fields:
            own = slice(starts[field] + 1, starts[field] + schema.cardinalities[field])
            self._rows[own] = counts[own]

    def of(self, ids: NDArray[np.int32]) -> NDArray[np.int64]:
        """The weights of some rows, (rows, places)."""
        return np.where(ids == PADDING, self.count - 1, ids + self._starts)

    def merged(self, min_count: int) -> NDArray[np.int64]:
        """For every weight the one that a candidate uses instead: that of `unknown` for rare values."""
        return np.where(self._rows < min_count, self._unknown, np.arange(self.count))

    def different(self, candidates: Sequence[int]) -> list[int]:
        """The candidates that merge other values than the one before."""
        rare = [int((self._rows < candidate).sum()) for candidate in candidates]
        return [c for c, own, before in zip(candidates, rare, [-1, *rare], strict=False) if own != before]


class _Regressions:
    """One logistic regression per candidate, trained side by side."""

    def __init__(self, places: _Places, candidates: Sequence[int]) -> None:
        self._places, self._merged = places, np.stack([places.merged(c) for c in candidates])  # (C, weights)
        self._weights = np.zeros((len(candidates), places.count))
        self._bias = np.zeros(len(candidates))

    def fit(self, train: Split, valid: Split) -> Floats:
        """Trains, and returns every validation row's loss at each candidate's best epoch, (rows, C)."""
        rate = float(np.asarray(train.labels, np.float64).mean())
        self._bias[:] = np.log(rate / (1 - rate))
        state = [np.zeros_like(self._weights), np.zeros_like(self._weights)]
        draw, steps = np.random.default_rng(0), 0
        best = self._losses(valid)
        for _ in range(EPOCHS):
            for rows in np.array_split(draw.permutation(len(train)), max(1, len(train) // BATCH)):
                steps += 1
                self._step(train.ids[rows], np.asarray(train.labels[rows], np.float64), state, steps)
            losses = self._losses(valid)
            better = losses.mean(0) < best.mean(0)
            best[:, better] = losses[:, better]
            if not better.any():
                break
        return best

    def _logits(self, ids: NDArray[np.int32]) -> tuple[Floats, NDArray[np.int64]]:
        found = self._merged[:, self._places.of(ids)]  # (C, rows, places)
        weights = np.take_along_axis(self._weights, found.reshape(len(found), -1), 1).reshape(found.shape)
        return weights.sum(2).T + self._bias, found

    def _losses(self, split: Split) -> Floats:
        parts = []
        for start in range(0, len(split), 8192):
            logits, _ = self._logits(np.asarray(split.ids[start : start + 8192]))
            labels = np.asarray(split.labels[start : start + 8192], np.float64)[:, None]
            parts.append(np.logaddexp(0, logits) - labels * logits)
        return np.concatenate(parts)

    def _step(self, ids: NDArray[np.int32], labels: Floats, state: list[Floats], steps: int) -> None:
        """One step of Adam."""
        logits, found = self._logits(ids)
        slopes = (1 / (1 + np.exp(-logits)) - labels[:, None]) / len(labels)  # (rows, C)
        gradient = np.zeros_like(self._weights)
        for place, own in enumerate(found):
            each = np.repeat(slopes[:, place], own.shape[1])
            gradient[place] = np.bincount(own.ravel(), each, self._places.count)
        gradient[:, -1] = 0.0  # padding
        first, second = state
        first += 0.1 * (gradient - first)
        second += 0.001 * (gradient**2 - second)
        self._weights -= RATE * (first / (1 - 0.9**steps)) / (np.sqrt(second / (1 - 0.999**steps)) + 1e-8)
        self._bias -= RATE * slopes.sum(0)
