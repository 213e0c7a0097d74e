"""A task that every search can start from."""

import pytest

from fieldwise.data.store import Dataset
from fieldwise.models.dcnv2 import DCNv2
from fieldwise.train.pretraining import Pretrain, pretrain
from fieldwise.train.regularity import SoftOrthogonality
from fieldwise.train.task import Task


@pytest.fixture(scope="module")
def start(planted: Dataset) -> Task:
    """A task that starts from a pretrained model."""
    task = Task.of(planted, DCNv2(width=4), seed=3, device="cpu")
    paper = SoftOrthogonality(form="raw", place="loss")
    return task.starting_from(pretrain(task, Pretrain(batch=512, epochs=3, learning_rate=0.02, regularity=paper)).model)
