"""What trainings, searches and runs leave behind, as plain values with a JSON form."""

from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError


class Record(BaseModel):
    """Base of every record: frozen, and read back strictly."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    def to_json(self) -> dict[str, Any]:
        """The record as plain values."""
        return self.model_dump(mode="json")


def first_problem(error: ValidationError) -> str:
    """The first of an error's problems in one line: where, and what."""
    first = error.errors(include_input=False, include_url=False)[0]
    where = ".".join(map(str, first["loc"]))[:200]
    return " ".join(f"{where}: {first['msg']}".split())


class Metrics(Record):
    """How good predictions are on a split."""

    auc: float
    log_loss: float
    rows: int


class Epoch(Record):
    """One pass over the training rows; number 0 is the model before the first."""

    epoch: int
    loss: float | None
    """Mean training loss, penalty left out."""
    auc: float
    """On the validation split."""
    log_loss: float
    """On the validation split."""
    seconds: float


class Size(Record):
    """What a model stores."""

    columns: int
    embedding: int
    """Numbers in the embedding tables; the budget speaks of these."""
    first_order: int
    """First-order weights of FM-type models, outside the budget."""
    dense: int
    """All other weights."""


class SearchSummary(Record):
    """How a search went, beside its mask."""

    steps: int = 0
    epochs: int = 0
    evaluated_auc: float | None = None
    """Validation AUC of the model as the search itself evaluated it, at its end."""
    selected_auc: float
    """Validation AUC of the selected compact model, before retraining."""
    raw_live: int | None = None
    """Live columns before the exact finish."""
    reactivations: int = 0
    """How often a masked column came back."""
    nonzeros: int | None = None
    """Numbers that a layout of single entries or rows would store, for a search that drops those."""
    dense: int | None = None
    """Numbers that a dense layout would store to hold all those entries: every column with one of them."""
    winner: str | None = None
    """The search whose result was kept, for a search that runs several."""


class StageRecord(Record):
    """What one stage of a run did; its file is written last, so its presence means complete."""

    history: list[Epoch]
    seconds: float
    peak_memory: int
    """Bytes: resident on CPU, allocated on GPU."""
    summary: SearchSummary | None = None


class RunRecord(Record):
    """One line of the results table: one seed at one budget."""

    data: str
    """Fingerprint of the dataset."""
    source: str
    model: str
    search: str
    budget: str
    seed: int
    fields: list[str]
    cardinalities: list[int]
    widths_before: list[int]
    widths_after: list[int]
    full_size: Size
    compact_size: Size
    full_valid: Metrics
    full_test: Metrics
    compact_valid: Metrics
    compact_test: Metrics
    summary: SearchSummary
    seconds: dict[str, float]
    """Per stage."""
    peak_memory: int
    """Bytes: resident on CPU, allocated on GPU."""
    device: str
    settings: dict[str, Any]
    versions: dict[str, str]
