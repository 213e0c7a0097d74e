"""A recorded step must do what the plain one does."""

import pytest
import torch

from fieldwise.core.budget import Budget
from fieldwise.searches.gated import HAM, HamP
from fieldwise.searches.search import Search, search
from fieldwise.train import loop
from fieldwise.train.stages import Pretrain, pretrain
from fieldwise.train.task import Task
from tests.train.test_training import numbers

FAST = Pretrain(batch=512, epochs=3, patience=3, learning_rate=0.02)


@pytest.fixture
def on_gpu(task: Task) -> Task:
    return Task(task.schema, task.train_rows, task.valid_rows, task.model, 3, "cuda")


@pytest.mark.gpu
def test_a_recorded_training_is_the_plain_one(on_gpu: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = pretrain(on_gpu, FAST)
    monkeypatch.setattr(loop, "Captured", lambda step: step)
    plain = pretrain(on_gpu, FAST)
    for (loss, auc, _), (other_loss, other_auc, _) in zip(numbers(recorded)[1:], numbers(plain)[1:], strict=True):
        assert loss == pytest.approx(other_loss, rel=1e-4)
        assert auc == pytest.approx(other_auc, abs=1e-3)


@pytest.mark.gpu
@pytest.mark.parametrize("settings", [HAM(epochs=2, batch=512), HamP(epochs=2, batch=512)])
def test_a_recorded_search_is_the_plain_one(on_gpu: Task, monkeypatch: pytest.MonkeyPatch, settings: Search) -> None:
    start = on_gpu.starting_from(pretrain(on_gpu, FAST).model)
    recorded = search(start, settings, Budget.columns(8)).traces[0].tensors()
    monkeypatch.setattr(loop, "Captured", lambda step: step)
    plain = search(start, settings, Budget.columns(8)).traces[0].tensors()
    assert torch.equal(recorded["live"], plain["live"])
    assert torch.allclose(recorded["scores"], plain["scores"], atol=1e-6)
