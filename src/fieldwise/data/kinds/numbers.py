"""Integers: ids that are categories, or amounts whose neighbors behave alike."""

from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fieldwise.data.kinds import names
from fieldwise.data.kinds.column import Column
from fieldwise.data.kinds.evidence import Predicted, predict
from fieldwise.data.rules import Rule

FEW: Final = 20
"""Integers with at most this many distinct values are categories: as bins, each would get its own id too."""
STANDARD_ERRORS: Final = 3.0
"""A difference of held-out log loss counts from this many standard errors on."""
MARGIN: Final = 1.25
"""A category must explain this many times as much of the log loss as bins do, since bins also serve unseen values."""
_EXACT: Final = 2.0**53
"""Larger integers are ids or hashes: nobody counts or measures that far."""
_RARE: Final = 1.2
"""Values with fewer rows on average than this are useless as categories."""
_BINS: Final = (16, 64)
LOWEST_COUNT: Final = -10
"""Counts may have a few negative values that stand for something else."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a column of numbers is a category or a number, and why."""

    kind: Literal["category", "number"]
    reason: str


def judge(column: Column, numbers: NDArray[np.float64], repeats: float) -> Verdict:
    """Decides for integers; `numbers` are those of the distinct values, `repeats` the mean rows of a value."""
    if column.distinct <= FEW:
        return Verdict("category", f"{column.distinct} distinct integers")
    if np.abs(numbers).max() > _EXACT:
        return Verdict("category", "integers above 2^53 are ids or hashes")
    base = predict(np.zeros_like(column.groups), column.clicks)
    category, bins = column.as_category, best_bins(column, numbers)
    errors = category.better_than(bins)
    losses = f"held-out log loss {category.loss:.4f} as a category, {bins.loss:.4f} in bins"
    if errors > STANDARD_ERRORS and base.loss - category.loss > MARGIN * (base.loss - bins.loss):
        return Verdict("category", f"neighbors behave differently: {losses}")
    if names.is_id(column.name):
        return Verdict("category", "integers whose name says id")
    if errors < -STANDARD_ERRORS:
        return Verdict("number", f"neighbors behave alike: {losses}")
    return _undecided(column, numbers, losses, repeats)


def _undecided(column: Column, numbers: NDArray[np.float64], losses: str, repeats: float) -> Verdict:
    """Decides by name, then by how often values repeat, when categories and bins predict the label alike."""
    said = names.hint(column.name)
    if said is not None:
        return Verdict(said, f"by name, since both predict alike: {losses}")
    if repeats < _RARE:
        return Verdict("number", "integers that rarely repeat")
    if column.known < 2 * column.distinct:  # too few of the sampled rows per value to compare frequencies
        if is_uniform(numbers):
            return Verdict("category", "integers that lie as evenly as ids do")
        return Verdict("number", "integers that lie as unevenly as amounts do")
    if evenness(column, numbers) > 0:
        return Verdict("number", "neighbors are about as frequent, as amounts are")
    return Verdict("category", "neighbors differ in frequency, as ids do")


def best_bins(column: Column, numbers: NDArray[np.float64]) -> Predicted:
    """Returns the best prediction of 16 or 64 bins that hold about the same number of rows, and of log-squared bins."""
    groups = [_quantile_groups(column, numbers, bins) for bins in _BINS]
    if numbers.min() >= LOWEST_COUNT:
        found = Rule(kind="log-squared").apply(pa.array(numbers)).to_numpy()
        groups.append(np.append(found - found.min(), found.max() - found.min() + 1)[column.codes])
    return min((predict(one, column.clicks) for one in groups), key=lambda one: one.loss)


def _quantile_groups(column: Column, numbers: NDArray[np.float64], bins: int) -> NDArray[np.int64]:
    order = np.argsort(numbers)
    reached = np.cumsum(column.counts[order])
    wanted = np.arange(1, bins) * (column.known / bins)
    edges = np.unique(numbers[order][np.searchsorted(reached, wanted)])
    groups = np.append(np.searchsorted(edges, numbers, side="right"), bins)  # the last is null
    return groups[column.codes]


def evenness(column: Column, numbers: NDArray[np.float64]) -> float:
    """Returns the correlation between the frequencies of neighboring values, above what ids would have, else 0 or less.

    Frequencies of amounts change slowly from value to value; those of ids do not depend on the neighbor.
    """
    frequencies = np.log(column.counts[np.argsort(numbers)])
    if len(frequencies) < 3 or frequencies[:-1].std() == 0 or frequencies[1:].std() == 0:
        return 0.0
    correlation = np.corrcoef(frequencies[:-1], frequencies[1:])[0, 1]
    return float(correlation - max(0.3, STANDARD_ERRORS / np.sqrt(len(frequencies))))


def is_heavy_tailed(column: Column, numbers: NDArray[np.float64]) -> bool:
    """Whether values are counts with a long tail, which log-squared bins describe better than equal ones."""
    order = np.argsort(numbers)
    reached = np.cumsum(column.counts[order])
    middle, high = (numbers[order][np.searchsorted(reached, share * column.known)] for share in (0.5, 0.99))
    return bool(numbers.min() >= LOWEST_COUNT and high > 10 * max(middle, 1.0))


def is_row_number(numbers: NDArray[np.float64], rows: int) -> bool:
    """Whether distinct integers lie as densely as the numbers of rows do; `rows` are all rows of the table."""
    return bool(len(numbers) > FEW and numbers.max() - numbers.min() < 1.1 * rows)


def is_uniform(numbers: NDArray[np.float64]) -> bool:
    """Whether distinct integers lie as evenly between their extremes as random ids do."""
    found = np.sort(numbers)
    span = found[-1] - found[0]
    if span <= 0:
        return False
    expected = np.arange(len(found)) / max(1, len(found) - 1)
    return bool(np.abs((found - found[0]) / span - expected).max() < max(0.02, 2 / len(found) ** 0.5))
