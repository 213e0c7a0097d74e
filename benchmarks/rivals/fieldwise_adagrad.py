"""fieldwise with row-wise Adagrad on its tables, for comparison with torchrec."""

from typing import Final

from rivals import fieldwise
from rivals.job import Contender, Job

PACKAGES: Final = fieldwise.PACKAGES
NOTES: Final = "as fieldwise, with row-wise Adagrad on tables, as torchrec"


def prepare(job: Job) -> Contender:
    """Builds the same training with row-wise Adagrad."""
    return fieldwise.prepare(job, "rowwise-adagrad")
