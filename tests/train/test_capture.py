"""A recorded step must do what the plain one does."""

import pytest
import torch

from fieldwise.core.budget import Budget
from fieldwise.models.dcnv2 import DCNv2
from fieldwise.models.fm import FM
from fieldwise.models.model import Model
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


@pytest.mark.gpu
@pytest.mark.parametrize("model", [FM(width=4), DCNv2(width=4)])
def test_the_same_training_gives_the_same_numbers_twice(on_gpu: Task, model: Model) -> None:
    again = Task(on_gpu.schema, on_gpu.train_rows, on_gpu.valid_rows, model, 3, "cuda")
    once, twice = (pretrain(again, FAST) for _ in range(2))
    assert [(e.loss, e.auc) for e in once.history] == [(e.loss, e.auc) for e in twice.history]
    for mine, other in zip(once.model.parameters(), twice.model.parameters(), strict=True):
        assert torch.equal(mine, other)
