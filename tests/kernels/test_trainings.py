"""Trainings with kernels against the same trainings with PyTorch's operations, and with themselves."""

from pathlib import Path

import pytest
import torch

from fieldwise.core.budget import Budget
from fieldwise.kernels.available import VARIABLE, can_run
from fieldwise.models.dcnv2 import DCNv2
from fieldwise.models.deepfm import DeepFM
from fieldwise.models.fm import FM
from fieldwise.models.model import Model
from fieldwise.searches import HAM
from fieldwise.searches.search import search
from fieldwise.searches.uniform import Uniform
from fieldwise.tables.optimizer import LARGE, Optimizer
from fieldwise.train.ahead import Ahead
from fieldwise.train.precision import Precision
from fieldwise.train.pretraining import Pretrain, pretrain
from fieldwise.train.retraining import Retrain, retrain
from fieldwise.train.task import Task
from tests.trainings import Stop, numbers, same

GPU = torch.device("cuda" if torch.cuda.is_available() else "cpu")
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not can_run(GPU), reason="needs a CUDA device and Triton")]
FAST = Pretrain(batch=512, epochs=3, patience=3, learning_rate=0.02)
MODELS = [FM(width=4), DeepFM(width=4), DCNv2(width=4)]


def on_gpu(task: Task, model: Model) -> Task:
    return Task(task.schema, task.train_rows, task.valid_rows, model, 3, "cuda")


@pytest.mark.parametrize("model", MODELS)
def test_a_training_is_that_without_kernels(task: Task, model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "all")
    task = on_gpu(task, model)
    mine = pretrain(task, FAST)
    start = task.starting_from(mine.model)
    found = search(start, HAM(epochs=2, batch=512), Budget.columns(8)).traces[0].tensors()
    small = search(start, Uniform(), Budget.percent(50)).model
    again = retrain(start, small, Retrain(batch=512, learning_rate=0.005))
    monkeypatch.setenv(VARIABLE, "none")
    other = search(start, HAM(epochs=2, batch=512), Budget.columns(8)).traces[0].tensors()
    assert torch.allclose(found["scores"], other["scores"], atol=1e-5)
    for one, two in (
        (mine, pretrain(task, FAST)),
        (again, retrain(start, small, Retrain(batch=512, learning_rate=0.005))),
    ):
        for (loss_one, auc, *_), (loss_two, other_auc, *_) in zip(numbers(one)[1:], numbers(two)[1:], strict=True):
            assert loss_one == pytest.approx(loss_two, rel=5e-3)
            # weights that differ by 1e-7 at the start move it by 0.012
            assert auc == pytest.approx(other_auc, abs=0.02)


@pytest.mark.parametrize("large", [0, 1000])
@pytest.mark.parametrize("model", MODELS)
def test_a_search_has_the_same_bits_without_what_is_done_ahead(
    task: Task, model: Model, large: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(LARGE, "kernels", large)
    start = on_gpu(task, model).starting_from(on_gpu(task, model).new_model())
    settings, budget = HAM(epochs=3, batch=512, patience=0), Budget.columns(8)
    found = search(start, settings, budget)
    monkeypatch.setattr(Ahead, "orders", lambda self, epoch: (None, None))
    monkeypatch.setattr(Optimizer, "prepare", lambda self, ids: None)
    other = search(start, settings, budget)
    assert [(e.loss, e.auc) for e in found.history] == [(e.loss, e.auc) for e in other.history]
    assert same(found.traces[0].tensors(), other.traces[0].tensors())
    assert same(found.model.state_dict(), other.model.state_dict())


@pytest.mark.parametrize("kernels", ["tables", "all"])
@pytest.mark.parametrize("large", [0, 1000])
@pytest.mark.parametrize("precision", ["float32", "tf32", "bfloat16"])
@pytest.mark.parametrize("model", MODELS)
def test_an_interrupted_training_has_the_same_bits(
    task: Task,
    model: Model,
    precision: Precision,
    large: int,
    kernels: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(VARIABLE, kernels)
    monkeypatch.setitem(LARGE, "kernels", large)
    task, settings = on_gpu(task, model), FAST.model_copy(update={"precision": precision})
    once = pretrain(task, settings)
    with pytest.raises(KeyboardInterrupt):
        pretrain(task, settings, tmp_path, Stop(2))
    resumed = pretrain(task, settings, tmp_path)
    assert numbers(once) == numbers(resumed)
    assert same(once.model.state_dict(), resumed.model.state_dict())
