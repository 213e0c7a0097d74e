"""Records of a comparison; `comparison.json` is one `Comparison`, readable without the library."""

from typing import Any, Literal

from fieldwise.core.baselines import BaselineRecord
from fieldwise.core.display import Shown, View
from fieldwise.core.records import Record, RunRecord

FORMAT: Literal["fieldwise-comparison/1"] = "fieldwise-comparison/1"


class CellRecord(Record):
    """One method at one budget, on one model, with one seed."""

    model: str
    """The label in `[compare] models`."""
    method: str
    """The label in `[compare] methods`."""
    budget: str
    seed: int
    state: Literal["complete", "failed", "open"]
    """open: not run yet; the same command resumes with it."""
    error: str | None = None
    """One line, if it failed."""
    uses_pretrained: bool
    """Whether the search starts from the pretrained full model, or the retraining distills it."""
    search_memory: int | None = None
    """Peak bytes of the search only."""
    record: RunRecord | None = None
    """The line of the results table, once complete."""


class PairedTest(Record):
    """A method against the baseline over the seeds that both have; p-values are two-sided."""

    pairs: int
    difference: float
    """Mean of the method's test AUC minus the baseline's."""
    t: float
    """p of the paired t-test."""
    wilcoxon: float
    """p of Wilcoxon's signed-rank test."""
    t_holm: float
    """p of the t-test, corrected for all tests of the table (Holm)."""
    wilcoxon_holm: float
    """p of Wilcoxon's test, corrected the same way."""


class Row(Record):
    """One method at one budget on one model, over its complete seeds."""

    model: str
    budget: str
    method: str
    seeds: list[int]
    auc: float
    """Mean test AUC."""
    auc_std: float | None
    """Sample standard deviation; None for one seed."""
    log_loss: float
    embedding: float
    """Mean count of numbers in the embedding tables."""
    bytes: float | None = None
    """Mean stored bytes of tables and first-order weights, scales included; None in comparisons of older versions."""
    nonzeros: float | None
    """Mean count of numbers that a sparse layout stores; None for structured methods."""
    dense: float | None
    """Mean count of numbers that a dense layout of the unstructured result stores."""
    uses_pretrained: bool
    search_seconds: float
    search_share: float
    """Search seconds divided by the seconds of one training of the full model."""
    total_share: float
    """The same ratio for all stages: pretraining if it is used, search and retraining."""
    search_memory: int
    """Peak bytes of the search, the maximum over the seeds."""
    test: PairedTest | None
    """Test against the baseline; None for the baseline itself and below two common seeds."""
    front: bool
    """Pareto-optimal: no other row of the model, nor the full model in any store, is better with no more bytes."""


class Full(Record):
    """The full model after pretraining, the reference of every row; in other types than float32, rounded after it."""

    model: str
    store: str = "float32"
    seeds: list[int]
    auc: float
    auc_std: float | None
    log_loss: float
    embedding: float
    bytes: float | None = None
    """Stored bytes of tables and first-order weights, scales included."""
    seconds: float


class Comparison(Shown, Record):
    """Every cell, and the statistics over them."""

    format: Literal["fieldwise-comparison/1"] = FORMAT
    settings: dict[str, Any]
    """The resolved settings file."""
    jobs: int
    """Parallel processes while the cells ran; they affect the seconds."""
    baseline: str
    comparisons: int
    """Number of tests that the p-values are corrected for."""
    full: list[Full]
    rows: list[Row]
    cells: list[CellRecord]
    without_search: BaselineRecord | None = None
    """A constant and a logistic regression on the same rows; None in comparisons of older versions."""

    @property
    def complete(self) -> bool:
        """Whether every cell is complete."""
        return all(cell.state == "complete" for cell in self.cells)

    def view(self) -> View:
        """One row per model, budget and method, the best test AUC first."""
        states, base = [cell.state for cell in self.cells], self.without_search
        counts = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
        rows = tuple(
            (
                *(row.model, row.budget, row.method, len(row.seeds), f"{row.auc:.4f}", f"{row.embedding:,.0f}"),
                f"{row.test.difference:+.4f}" if row.test else "",
            )
            for row in sorted(self.rows, key=lambda row: (row.model, row.budget, -row.auc))
        )
        return View(
            f"Comparison: {len(states)} cells, {counts}; baseline {self.baseline}",
            (
                *(f"Full {f.model}: test AUC {f.auc:.4f}, embedding {f.embedding:,.0f}" for f in self.full),
                *([f"Logistic regression: test AUC {base.logistic.auc:.4f}"] if base else []),
            ),
            ("model", "budget", "method", "seeds", "test AUC", "embedding", "difference"),
            rows,
        )
