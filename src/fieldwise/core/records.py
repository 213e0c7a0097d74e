"""Records of trainings, searches and runs: plain values with a JSON form."""

from typing import Any

from pydantic import BaseModel, ConfigDict, FiniteFloat, ValidationError, model_validator

from fieldwise.core.display import Cells, Shown, View


class Record(BaseModel):
    """Base of every record: immutable, and unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    def to_json(self) -> dict[str, Any]:
        """The record as plain values."""
        return self.model_dump(mode="json")


def first_problem(error: ValidationError) -> str:
    """The first problem of an error in one line: its key and its message."""
    first = error.errors(include_input=False, include_url=False)[0]
    where = ".".join(map(str, first["loc"]))[:200]
    return " ".join(f"{where}: {first['msg']}".split())


class Metrics(Record):
    """Quality of predictions on a split."""

    auc: FiniteFloat
    log_loss: FiniteFloat
    rows: int


class Errors(Record):
    """Standard errors from the test rows: of a full and a compact model, and of compact minus full, row by row."""

    full_auc: FiniteFloat
    compact_auc: FiniteFloat
    auc_change: FiniteFloat
    full_log_loss: FiniteFloat
    compact_log_loss: FiniteFloat
    log_loss_change: FiniteFloat


class Epoch(Record):
    """One pass over the training rows, or less in the last one; number 0 is the model before the first pass."""

    epoch: int
    loss: FiniteFloat | None
    """Mean training loss, without penalties."""
    auc: FiniteFloat
    """On the validation split."""
    log_loss: FiniteFloat
    """On the validation split."""
    seconds: FiniteFloat
    averaged_auc: FiniteFloat | None = None
    """That of the average of weights over epochs, if there is one."""

    @property
    def is_averaged(self) -> bool:
        """Whether the average of weights is better than those of the epoch."""
        return self.averaged_auc is not None and self.averaged_auc > self.auc

    @property
    def kept_auc(self) -> float:
        """On the validation split, of the better of the epoch's weights and the average."""
        return self.averaged_auc if self.averaged_auc is not None and self.is_averaged else self.auc


class Size(Record):
    """Counts of numbers that a model stores."""

    columns: int
    embedding: int
    """Numbers in the embedding tables; the budget limits these."""
    first_order: int
    """First-order weights of FM-type models; only budgets in bytes count them."""
    dense: int
    """All other weights."""


class Bytes(Record):
    """Stored bytes of a model, by part; scales count with their tables."""

    tables: int
    first_order: int
    """First-order weights of FM-type models."""
    dense: int
    """All other weights, always float32."""
    scales: int = 0
    """The part of tables and first-order weights that is scales of integers."""
    vocabularies: int = 0
    """Files that encode raw values; no budget counts them."""
    folder: int = 0
    """All files of the model's folder."""

    @property
    def per_id(self) -> int:
        """What a budget in bytes counts: tables, first-order weights and their scales."""
        return self.tables + self.first_order

    @property
    def weights(self) -> int:
        """All tensors: what is stored per id, and dense layers."""
        return self.per_id + self.dense

    @classmethod
    def of(cls, size: Size) -> "Bytes":
        """The bytes of a model in float32."""
        return cls(tables=4 * size.embedding, first_order=4 * size.first_order, dense=4 * size.dense)


class StoredResult(Record):
    """A model in one store: its bytes, and its quality on the test rows."""

    bytes: Bytes
    test: Metrics


class SearchSummary(Record):
    """Statistics of a search."""

    steps: int = 0
    epochs: int = 0
    evaluated_auc: float | None = None
    """Validation AUC of the searched model at the end of the search, before selection."""
    selected_auc: float
    """Validation AUC of the selected model at the end of the search, with the weights that the search trained, if it
    trains; before retraining."""
    raw_live: int | None = None
    """Live columns before the final selection meets the budget exactly."""
    reactivations: int = 0
    """How many times a masked column became live again."""
    nonzeros: int | None = None
    """Numbers that a sparse layout stores, for a search that drops single entries or rows."""
    dense: int | None = None
    """Numbers that a dense layout stores for the same result: every column with a nonzero entry."""
    winner: str | None = None
    """The search whose result was kept, for a search that runs several."""


class Harm(Record):
    """The evidence that a field helps on rows seen in training and hurts on others (`core/harm.py`)."""

    field: str
    train: FiniteFloat
    """AUC that the model loses on training rows when the field's values are hidden from it."""
    train_error: FiniteFloat
    """Standard error of `train`."""
    valid: FiniteFloat
    """AUC that it loses on validation rows."""
    with_auc: FiniteFloat
    """Validation AUC of the model with the field."""
    without_auc: FiniteFloat | None = None
    """Validation AUC of a model trained without the field; None if none was trained."""
    gain_error: FiniteFloat | None = None
    """Standard error of the difference of the two, paired row by row."""
    left_out: bool = False
    """Whether the model has no columns of the field, and no first-order weights unless `first_order`."""
    first_order_auc: FiniteFloat | None = None
    """Validation AUC of a model trained without the field's columns, with its first-order weights; None if none was
    trained."""
    first_order: bool = False
    """Whether a field without columns has its first-order weights."""


class StageRecord(Record):
    """The record of one stage. Its file is written last, so its presence means complete."""

    history: list[Epoch]
    seconds: float
    peak_memory: int
    """Bytes: resident on CPU, allocated on GPU."""
    summary: SearchSummary | None = None
    harms: list[Harm] = []
    """Fields that a pretraining suspected of harm."""


class RunRecord(Shown, Record):
    """One line of the results table: one seed at one budget."""

    data: str
    """Fingerprint of the dataset."""
    source: str
    """What reports call the rows (`Dataset.title`)."""
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
    errors: Errors | None = None
    """None in records of older versions, and if a label has fewer than two test rows."""
    summary: SearchSummary
    seconds: dict[str, float]
    """Per stage."""
    peak_memory: int
    """Bytes: resident on CPU, allocated on GPU."""
    device: str
    settings: dict[str, Any]
    versions: dict[str, str]
    store: str = "float32"
    """The stored type of the compact model's tables."""
    full_bytes: Bytes | None = None
    """None in records of older versions, as is `compact_bytes`; `stored_sizes` replaces it."""
    compact_bytes: Bytes | None = None
    full_stored: dict[str, StoredResult] = {}
    """The full model after rounding its tables to each other type, without training: the answers to beat."""
    harms: list[Harm] = []
    """Fields that the pretraining suspected of harm; the full model lacks those that were left out."""

    @model_validator(mode="after")
    def _one_per_field(self) -> "RunRecord":
        counts = {len(self.fields), len(self.cardinalities), len(self.widths_before), len(self.widths_after)}
        if len(counts) > 1:
            raise ValueError("fields, cardinalities, widths_before and widths_after must have one entry per field")
        return self

    @property
    def stored_sizes(self) -> tuple[Bytes, Bytes]:
        """The bytes of the full and the compact model; in records of older versions, both are float32."""
        return self.full_bytes or Bytes.of(self.full_size), self.compact_bytes or Bytes.of(self.compact_size)

    def view(self) -> View:
        """Sizes and metrics of the full and the compact model."""
        title = f"RunRecord: {self.search} on {self.source}, {self.model}, budget {self.budget}, seed {self.seed}"
        return View(title, (), ("model", *_HEADS), tuple(row[2:] for row in self._rows()))

    def _rows(self) -> tuple[tuple[object, ...], ...]:
        models = {
            "full": (self.full_size, self.full_valid, self.full_test),
            "compact": (self.compact_size, self.compact_valid, self.compact_test),
        }
        return tuple(
            (
                self.budget,
                self.seed,
                name,
                *(f"{count:,}" for count in (size.columns, size.embedding, size.first_order, size.dense)),
                *(f"{metric:.4f}" for metric in (valid.auc, test.auc, test.log_loss)),
            )
            for name, (size, valid, test) in models.items()
        )


_HEADS = ("columns", "embedding", "linear", "dense", "valid AUC", "test AUC", "test log loss")


class RunRecords(Shown, list[RunRecord]):
    """The records of a run, one per budget and seed: a list that shows itself as a table."""

    def view(self) -> View:
        """One row for the full model and one for the compact model of each record."""
        rows: tuple[Cells, ...] = tuple(row for record in self for row in record._rows())
        first = f": {self[0].search} on {self[0].source}, {self[0].model}" if self else ""
        return View(f"{len(self)} records{first}", (), ("budget", "seed", "model", *_HEADS), rows)
