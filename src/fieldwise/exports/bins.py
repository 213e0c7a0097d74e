"""The exact numbers at which the id of a binned field changes, found by applying the rule itself."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fieldwise.data.field_encoder import FieldEncoder
from fieldwise.data.rules import Rule


@dataclass(frozen=True, slots=True)
class Steps:
    """A step function from numbers to ids: the id is `ids[k]`, where k is the number of edges <= the number."""

    edges: NDArray[np.float64]
    ids: NDArray[np.int64]
    null: int
    """The id of a missing number."""


def steps_of(field: FieldEncoder) -> Steps:
    """Returns the steps of a field of binned numbers."""
    known = field.vocabulary.values.drop_null().to_numpy(zero_copy_only=False).astype(np.int64)
    edges = first_numbers(field.rule, np.concatenate([known, known + 1]))
    edges = np.unique(edges[np.isfinite(edges) | (edges > 0)])
    ids = field.ids(pa.array(np.concatenate([[-np.inf], edges])))[:, 0].astype(np.int64)
    null = int(field.ids(pa.nulls(1, pa.float64()))[0, 0])
    return Steps(edges, ids, null)


def first_numbers(rule: Rule, bins: NDArray[np.int64]) -> NDArray[np.float64]:
    """Returns, for each bin, the smallest number whose bin is at least that one; NaN if there is none.

    Bins are monotonic in the number, so this is a bisection over all floats.
    """
    low = np.full(len(bins), _place(np.asarray([-np.inf]))[0])
    high = np.full(len(bins), _place(np.asarray([np.inf]))[0] + 1)
    while (low < high).any():
        middle = (low >> 1) + (high >> 1) + (low & high & 1)
        reached = np.asarray(rule.apply(pa.array(_number(np.minimum(middle, _TOP))))) >= bins
        reached |= middle > _TOP
        high = np.where(reached, middle, high)
        low = np.where(reached, low, np.minimum(middle + 1, high))
    return np.where(low > _TOP, np.nan, _number(np.minimum(low, _TOP)))


def _place(numbers: NDArray[np.float64]) -> NDArray[np.int64]:
    """Maps floats to consecutive integers in the same order."""
    bits = numbers.view(np.int64)
    return bits ^ ((bits >> 63) & np.int64(2**63 - 1))


def _number(places: NDArray[np.int64]) -> NDArray[np.float64]:
    return (places ^ ((places >> 63) & np.int64(2**63 - 1))).view(np.float64)


_TOP = int(_place(np.asarray([np.inf]))[0])
