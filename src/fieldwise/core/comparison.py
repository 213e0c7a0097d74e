"""What a comparison of searches leaves behind; `comparison.json` is one `Comparison`, readable without the library."""

from typing import Any, Literal

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
    """open: not run yet; the same command goes on with it."""
    error: str | None = None
    """One line, where it failed."""
    uses_pretrained: bool
    """Whether the pretrained full model is needed: the search begins from it, or the retraining learns from it."""
    search_memory: int | None = None
    """Peak bytes of the search alone."""
    record: RunRecord | None = None
    """The whole line of the results table, once complete."""


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
    """The t-test's p, corrected for all comparisons of the table (Holm)."""
    wilcoxon_holm: float
    """Wilcoxon's p, corrected likewise."""


class Row(Record):
    """One method at one budget on one model, over its complete seeds."""

    model: str
    budget: str
    method: str
    seeds: list[int]
    auc: float
    """Mean test AUC."""
    auc_std: float | None
    """Standard deviation of a sample; none for one seed."""
    log_loss: float
    embedding: float
    """Mean numbers in the embedding tables."""
    nonzeros: float | None
    """Mean numbers that an unstructured layout would store, where the method is unstructured."""
    dense: float | None
    """Mean numbers that a dense layout of the unstructured result would store."""
    uses_pretrained: bool
    search_seconds: float
    search_share: float
    """Search seconds by the seconds of one plain training of the full model."""
    total_share: float
    """The same for everything: the pretraining where it is used, search and retraining."""
    search_memory: int
    """Peak bytes of the search, the largest of the seeds."""
    test: PairedTest | None
    """Against the baseline; none for the baseline itself, and below two common seeds."""
    front: bool
    """Whether no other row of the model, nor the full model, has a better AUC with no more parameters."""


class Full(Record):
    """The full model, trained plainly: what every row is measured by."""

    model: str
    seeds: list[int]
    auc: float
    auc_std: float | None
    log_loss: float
    embedding: float
    seconds: float


class Comparison(Record):
    """Every cell, and what they say together."""

    format: Literal["fieldwise-comparison/1"] = FORMAT
    settings: dict[str, Any]
    """The resolved settings file."""
    jobs: int
    """Processes side by side while the cells ran; seconds are to be read with it."""
    baseline: str
    comparisons: int
    """How many tests the corrections are for."""
    full: list[Full]
    rows: list[Row]
    cells: list[CellRecord]

    @property
    def complete(self) -> bool:
        """Whether every cell is complete."""
        return all(cell.state == "complete" for cell in self.cells)
