"""Records of what a run is judged by: baselines on the same rows, and standard errors from the test rows."""

from pydantic import FiniteFloat

from fieldwise.core.records import Metrics, Record


class SingleField(Record):
    """What one field reaches without any other."""

    name: str
    auc: FiniteFloat
    """Test AUC of the click rate of each of its ids in the training rows."""


class BaselineRecord(Record):
    """A constant, a logistic regression and single fields, on the encoded rows of a run."""

    rows: dict[str, int]
    """Per split."""
    clicks: dict[str, int]
    """Per split."""
    constant: Metrics
    """Test metrics of the click rate of the training rows as every prediction; its AUC is 0.5."""
    logistic: Metrics
    """Test metrics of the logistic regression."""
    logistic_valid: Metrics
    l2: FiniteFloat
    """Strength of its L2 penalty, with the best validation log loss."""
    logistic_rows: int
    """Training rows that it used."""
    auc_error: FiniteFloat | None
    """Standard error of its test AUC (DeLong); None if a label has fewer than two test rows."""
    log_loss_error: FiniteFloat | None
    """Standard error of its test log loss."""
    fields: list[SingleField]
    seconds: FiniteFloat
