"""Cells side by side: means over seeds, and differences tested seed by seed."""

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from scipy import stats

from evidence.data import Cell, Evidence
from fieldwise.reports.comparison.statistics import holm, paired

Measure = Callable[[Cell], float]


def auc(cell: Cell) -> float:
    """Test AUC."""
    return cell.auc


def valid_auc(cell: Cell) -> float:
    """Validation AUC, by which settings may be chosen."""
    return cell.valid_auc


@dataclass(frozen=True)
class Difference:
    """One group of cells less another."""

    pairs: int
    mean: float
    t: float
    """p of the paired t-test, two-sided."""
    welch: float
    """p of Welch's t-test, which does not pair seeds, two-sided."""

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
        """Each model and budget."""
        return [(model, budget) for model in self.models for budget in self.budgets]

    def cells(self, model: str, budget: str, method: str) -> list[Cell]:
        """The seeds of one model, budget and method."""
        wanted = model, budget, method
        found = [cell for cell in self.evidence.cells if (cell.model, cell.budget, cell.method) == wanted]
        return sorted(found, key=lambda cell: cell.seed)

    def full(self, model: str) -> list[Cell]:
        """The seeds of a full model."""
        return [cell for cell in self.evidence.full if cell.model == model]


def mean(cells: Iterable[Cell], measure: Measure = auc) -> float:
    """Over the seeds."""
    return fmean(map(measure, cells))


def spread(cells: Sequence[Cell], measure: Measure = auc) -> str:
    """Mean and standard deviation over the seeds."""
    values = [measure(cell) for cell in cells]
    return f"{fmean(values):.4f}" + (f" ± {stdev(values):.4f}" if len(values) > 1 else "")


def difference(ours: Sequence[Cell], theirs: Sequence[Cell], measure: Measure = auc) -> Difference:
    """Ours less theirs, over the seeds that both have."""
    other = {cell.seed: measure(cell) for cell in theirs}
    a = [measure(cell) for cell in ours if cell.seed in other]
    b = [other[cell.seed] for cell in ours if cell.seed in other]
    gaps = [x - y for x, y in zip(a, b, strict=True)]
    if len(gaps) < 2:
        return Difference(len(gaps), fmean(gaps), 1.0, 1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # values that do not differ at all: p is nan
        welch = float(stats.ttest_ind(a, b, equal_var=False).pvalue)
    return Difference(len(gaps), fmean(gaps), paired(gaps)[0], welch if welch == welch else 1.0)


def with_holm(found: Sequence[Difference]) -> list[float]:
    """The paired p-values, corrected together."""
    return holm([one.t for one in found])
