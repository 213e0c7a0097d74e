"""Where the id of a binned number changes: exact, because the rule itself is asked."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fieldwise.data.encoder import FieldEncoder
from fieldwise.data.rules import Rule


@dataclass(frozen=True, slots=True)
class Steps:
    """A number's id is `ids[k]`, with k the count of edges that are not above the number."""

    edges: NDArray[np.float64]
    ids: NDArray[np.int64]
    null: int
    """The id of a number that is not there."""


def steps_of(field: FieldEncoder) -> Steps:
    """The steps of a field of binned numbers."""
    known = field.vocabulary.values.drop_null().to_numpy(zero_copy_only=False).astype(np.int64)
    edges = first_numbers(field.rule, np.concatenate([known, known + 1]))
    edges = np.unique(edges[np.isfinite(edges) | (edges > 0)])
    ids = field.ids(pa.array(np.concatenate([[-np.inf], edges])))[:, 0].astype(np.int64)
    null = int(field.ids(pa.nulls(1, pa.float64()))[0, 0])
    return Steps(edges, ids, null)


def first_numbers(rule: Rule, bins: NDArray[np.int64]) -> NDArray[np.float64]:
    """The smallest number whose bin is not below each of the bins; NaN where there is none.

    Bins never fall as numbers rise, so this is a bisection over all floating point numbers.
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
    """Whole numbers in the order of floating point numbers, without gaps."""
    bits = numbers.view(np.int64)
    return bits ^ ((bits >> 63) & np.int64(2**63 - 1))


def _number(places: NDArray[np.int64]) -> NDArray[np.float64]:
    return (places ^ ((places >> 63) & np.int64(2**63 - 1))).view(np.float64)


_TOP = int(_place(np.asarray([np.inf]))[0])
