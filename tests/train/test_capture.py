"""A captured step must equal the direct one."""

import gc
from dataclasses import replace

import pytest
import torch

from fieldwise.core.budget import Budget
from fieldwise.core.store import Store
from fieldwise.kernels.available import CHOICES, VARIABLE
from fieldwise.models.dcnv2 import DCNv2
from fieldwise.models.deepfm import DeepFM
from fieldwise.models.fm import FM
from fieldwise.models.model import Model
from fieldwise.searches import HAM, HamP
from fieldwise.searches.search import Search, search
from fieldwise.searches.uniform import Uniform
from fieldwise.tables.optimizer import LARGE
from fieldwise.train import loop
from fieldwise.train.capture import WARM_UP, Captured
from fieldwise.train.pretraining import Pretrain, pretrain
from fieldwise.train.retraining import Retrain, retrain
from fieldwise.train.task import Task
from tests.trainings import numbers

FAST = Pretrain(batch=512, epochs=3, patience=3, learning_rate=0.02)


@pytest.fixture
def on_gpu(task: Task) -> Task:
    return Task(task.schema, task.train_rows, task.valid_rows, task.model, 3, "cuda")


@pytest.mark.gpu
@pytest.mark.parametrize("kernels", CHOICES)
@pytest.mark.parametrize("model", [FM(width=4), DCNv2(width=4)])
def test_a_training_leaves_no_memory_to_the_garbage_collector(
    on_gpu: Task, model: Model, kernels: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, kernels)
    task = replace(on_gpu, model=model)
    pretrain(task, FAST)
    gc.collect()
    gc.disable()
    try:
        before = torch.cuda.memory_allocated()
        pretrain(task, FAST)
        assert torch.cuda.memory_allocated() == before
    finally:
        gc.enable()


@pytest.mark.gpu
def test_a_recorded_training_is_the_plain_one(on_gpu: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = pretrain(on_gpu, FAST)
    monkeypatch.setattr(loop, "Captured", lambda step: step)
    plain = pretrain(on_gpu, FAST)
    for (loss, auc, *_), (other_loss, other_auc, *_) in zip(numbers(recorded)[1:], numbers(plain)[1:], strict=True):
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
def test_a_recorded_step_reads_the_rate_of_its_step(on_gpu: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    task = on_gpu.starting_from(pretrain(on_gpu, FAST).model)
    small = search(task, Uniform(), Budget.percent(50)).model
    settings = Retrain(batch=512, learning_rate=0.005)
    recorded = retrain(task, small, settings)
    monkeypatch.setattr(loop, "Captured", lambda step: step)
    for (loss, auc, *_), (other_loss, other_auc, *_) in zip(
        numbers(recorded)[1:], numbers(retrain(task, small, settings))[1:], strict=True
    ):
        assert loss == pytest.approx(other_loss, rel=1e-4)
        assert auc == pytest.approx(other_auc, abs=1e-3)


@pytest.mark.gpu
@pytest.mark.parametrize("store", ["int4", "int4 row"])
def test_a_recorded_rounded_retraining_is_the_plain_one(
    on_gpu: Task, monkeypatch: pytest.MonkeyPatch, store: str
) -> None:
    task = Task(on_gpu.schema, on_gpu.train_rows, on_gpu.valid_rows, DeepFM(width=4), 3, "cuda")
    task = task.starting_from(pretrain(task, FAST).model)
    small = search(task, Uniform(), Budget.percent(50)).model
    settings = Retrain(store=Store.parse(store), batch=512, epochs=3, patience=3, learning_rate=0.02)
    graphs: list[Captured] = []
    record = Captured._record

    def counted(self: Captured, inputs: tuple[torch.Tensor, ...]) -> None:
        graphs.append(self)
        record(self, inputs)

    monkeypatch.setattr(Captured, "_record", counted)
    recorded = retrain(task, small, settings)
    assert len(graphs) == 2  # the training without rounding, and the one with
    monkeypatch.setattr(loop, "Captured", lambda step: step)
    plain = retrain(task, small, settings)
    assert len(graphs) == 2
    for mine, other in zip(recorded.history[1:], plain.history[1:], strict=True):
        assert mine.loss == pytest.approx(other.loss, rel=1e-3)
        assert mine.auc == pytest.approx(other.auc, abs=2e-3)


@pytest.mark.gpu
@pytest.mark.parametrize("model", [FM(width=4), DCNv2(width=4)])
def test_the_same_training_gives_the_same_numbers_twice(on_gpu: Task, model: Model) -> None:
    again = Task(on_gpu.schema, on_gpu.train_rows, on_gpu.valid_rows, model, 3, "cuda")
    once, twice = (pretrain(again, FAST) for _ in range(2))
    assert [(e.loss, e.auc) for e in once.history] == [(e.loss, e.auc) for e in twice.history]
    for mine, other in zip(once.model.parameters(), twice.model.parameters(), strict=True):
        assert torch.equal(mine, other)


@pytest.mark.gpu
def test_rows_read_on_a_gpu_follow_dense_adam(on_gpu: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    task = Task(on_gpu.schema, on_gpu.train_rows, on_gpu.valid_rows, FM(width=4), 3, "cuda")
    once = FAST.model_copy(update={"epochs": 1})
    dense = pretrain(task, once.model_copy(update={"optimizer": "dense-adam"}))
    for kind in ("cuda", "kernels"):
        monkeypatch.setitem(LARGE, kind, 0)
    by_rows = pretrain(task, once)
    assert by_rows.history[-1].loss == pytest.approx(dense.history[-1].loss, rel=1e-3)
    fresh = task.new_model()
    for mine, other, before in zip(
        *(m.embedding.parameters() for m in (by_rows.model, dense.model, fresh)), strict=True
    ):
        moved = (other - before).norm()
        assert moved > 0.1
        assert (mine - other).norm() < 0.05 * moved


def recorded_and_lost(x: torch.Tensor) -> None:
    """Leaves a captured graph and its inputs as cyclic garbage, which only the collector frees."""
    cycle: list[object] = [step := Captured(lambda y: (y @ y).relu() + 1)]
    cycle += [cycle, torch.cuda.Stream(), torch.cuda.Event()]
    for _ in range(WARM_UP + 2):
        step(x)


@pytest.mark.gpu
def test_garbage_of_an_earlier_recording_does_not_spoil_the_next() -> None:
    x = torch.ones(100, 100, device="cuda")

    def step(y: torch.Tensor) -> torch.Tensor:
        recording = torch.cuda.is_current_stream_capturing()
        made = [
            [number] for number in range(20_000 if recording else 1)
        ]  # triggers the garbage collector if it is enabled
        return (y @ y).sum() + 0 * len(made)

    for _ in range(5):
        gc.disable()
        recorded_and_lost(x)
        new = Captured(step)
        for _ in range(WARM_UP):
            new(x)
        gc.enable()
        assert [float(new(x)) for _ in range(2)] == [1e6] * 2
