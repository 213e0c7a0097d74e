"""Means over seeds, and paired tests of differences between cells."""

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from scipy import stats

from evidence.data import Cell, Evidence
from fieldwise.reports.comparison.statistics import holm, paired

Measure = Callable[[Cell], float]


def auc(cell: Cell) -> float:
    """Returns the test AUC."""
    return cell.auc


def valid_auc(cell: Cell) -> float:
    """Returns the validation AUC, the measure for choosing settings."""
    return cell.valid_auc


@dataclass(frozen=True)
class Difference:
    """The difference between two groups of cells."""

    pairs: int
    mean: float
    t: float
    """Two-sided p of the paired t-test."""
    welch: float
    """Two-sided p of Welch's t-test, which does not pair seeds."""

    def __str__(self) -> str:
        return f"{self.mean:+.4f}"


@dataclass(frozen=True)
class Grid:
    """The cells of one comparison."""

    evidence: Evidence

    @property
    def models(self) -> list[str]:
        """In the order of the settings file."""
        return list(dict.fromkeys(cell.model for cell in self.evidence.cells))

    @property
    def budgets(self) -> list[str]:
        """In the order of the settings file."""
        return list(dict.fromkeys(str(cell.budget) for cell in self.evidence.cells))

    @property
    def methods(self) -> list[str]:
        """In the order of the settings file."""
        return list(dict.fromkeys(str(cell.method) for cell in self.evidence.cells))

    @property
    def places(self) -> list[tuple[str, str]]:
        """Each pair of model and budget."""
        return [(model, budget) for model in self.models for budget in self.budgets]

    def cells(self, model: str, budget: str, method: str) -> list[Cell]:
        """Returns the cells of one model, budget and method, ordered by seed."""
        wanted = model, budget, method
        found = [cell for cell in self.evidence.cells if (cell.model, cell.budget, cell.method) == wanted]
        return sorted(found, key=lambda cell: cell.seed)

    def full(self, model: str) -> list[Cell]:
        """Returns the cells of a full model."""
        return [cell for cell in self.evidence.full if cell.model == model]


def mean(cells: Iterable[Cell], measure: Measure = auc) -> float:
    """Returns the mean over cells."""
    return fmean(map(measure, cells))


def spread(cells: Sequence[Cell], measure: Measure = auc) -> str:
    """Formats the mean and standard deviation over cells."""
    values = [measure(cell) for cell in cells]
    return f"{fmean(values):.4f}" + (f" ± {stdev(values):.4f}" if len(values) > 1 else "")


def difference(ours: Sequence[Cell], theirs: Sequence[Cell], measure: Measure = auc) -> Difference:
    """Returns ours minus theirs, over common seeds."""
    other = {cell.seed: measure(cell) for cell in theirs}
    a = [measure(cell) for cell in ours if cell.seed in other]
    b = [other[cell.seed] for cell in ours if cell.seed in other]
    gaps = [x - y for x, y in zip(a, b, strict=True)]
    if len(gaps) < 2:
        return Difference(len(gaps), fmean(gaps), 1.0, 1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # p is NaN if all values are equal
        welch = float(stats.ttest_ind(a, b, equal_var=False).pvalue)
    return Difference(len(gaps), fmean(gaps), paired(gaps)[0], welch if welch == welch else 1.0)


def with_holm(found: Sequence[Difference]) -> list[float]:
    """Returns the paired p-values after Holm's correction."""
    return holm([one.t for one in found])
