"""fieldwise with row-wise Adagrad on its tables, which is what stands beside torchrec."""

from typing import Final

from rivals import fieldwise
from rivals.job import Contender, Job

PACKAGES: Final = fieldwise.PACKAGES
NOTES: Final = "as fieldwise, with row-wise Adagrad on tables, as torchrec"


def prepare(job: Job) -> Contender:
    """The same training with the other optimizer."""
    return fieldwise.prepare(job, "rowwise-adagrad")
