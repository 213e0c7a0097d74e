"""Small steps run on one thread, regardless of torch's setting."""

from collections.abc import Iterator
from contextlib import suppress

import pytest
import torch

from fieldwise.core.watcher import Watcher
from fieldwise.data.store import Dataset
from fieldwise.models.dcnv2 import DCNv2
from fieldwise.models.deepfm import DeepFM
from fieldwise.models.fm import FM
from fieldwise.models.model import Model
from fieldwise.tables import threads
from fieldwise.tables.threads import step_threads
from fieldwise.train.pretraining import Pretrain, pretrain
from fieldwise.train.task import Task


@pytest.fixture(autouse=True)
def _two_threads() -> Iterator[None]:
    given = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(given)


class Threads(Watcher):
    """Records the number of threads after each step."""

    def __init__(self) -> None:
        self.seen: set[int] = set()

    def step(self, stage: str, epoch: int, step: int, steps: int) -> None:
        """Record the number of threads."""
        self.seen.add(torch.get_num_threads())


@pytest.mark.parametrize(
    ("model", "small", "expected"),
    [(FM(), 2**16, 1), (DeepFM(), 2**16, 1), (FM(), 512 * 6, 2), (FM(), 512 * 6 + 1, 1), (DCNv2(), 2**16, 2)],
)
def test_steps_run_on_the_threads_they_are_worth(
    planted: Dataset, monkeypatch: pytest.MonkeyPatch, model: Model, small: int, expected: int
) -> None:
    monkeypatch.setattr(threads, "SMALL", small)
    heard = Threads()
    pretrain(Task.of(planted, model, device="cpu"), Pretrain(batch=512, epochs=1), None, heard)
    assert heard.seen == {expected}
    assert torch.get_num_threads() == 2


def test_threads_come_back_after_an_error(planted: Dataset) -> None:
    model = Task.of(planted, FM(), device="cpu").new_model()
    with suppress(ValueError), step_threads(model, 10):
        assert torch.get_num_threads() == 1
        raise ValueError
    assert torch.get_num_threads() == 2
