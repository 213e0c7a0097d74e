"""The moving average of weights over epochs."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from fieldwise.core.errors import SettingsError
from fieldwise.core.records import Epoch
from fieldwise.core.settings import validate
from fieldwise.data.store import Dataset
from fieldwise.models.deepfm import DeepFM
from fieldwise.models.factory import model_class
from fieldwise.models.model import CTRModel
from fieldwise.pipeline.settings import RunSettings
from fieldwise.searches.search import search
from fieldwise.searches.uniform import Uniform
from fieldwise.train import average
from fieldwise.train.average import Average, before_of, check_average
from fieldwise.train.checkpoint import weights
from fieldwise.train.evaluate import evaluate
from fieldwise.train.pretraining import Pretrain, pretrain
from fieldwise.train.retraining import Retrain, retrain
from fieldwise.train.task import Task
from tests.trainings import Stop, interrupted, numbers, same

SETTINGS = Pretrain(batch=512, epochs=4, patience=4, learning_rate=0.01, average=0.5, harmful="keep")
RETRAIN: dict[str, Any] = {
    "batch": 256, "epochs": 4, "learning_rate": 0.02, "decay": {"rate": 1, "epochs": 4}, "average": 0.5,
}  # fmt: skip


@pytest.fixture
def deep(planted: Dataset) -> Task:
    """A model with batch normalization, whose statistics are averaged too."""
    return Task.of(planted, DeepFM(width=4), seed=3, device="cpu")


def test_the_average_follows_from_the_weights_of_every_epoch(deep: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    seen, means = [], []
    add = Average.add

    def noted(self: Average, model: nn.Module) -> None:
        seen.append(weights(model))
        add(self, model)
        means.append(self.tensors())

    monkeypatch.setattr(Average, "add", noted)
    found = pretrain(deep, SETTINGS)
    assert [epoch.averaged_auc is None for epoch in found.history] == [True, *[False] * 4]
    assert same(means[0], seen[0])
    for before, now, mean in zip(means[:-1], seen[1:], means[1:], strict=True):
        for name, tensor in now.items():
            wanted = (before[name] + tensor) / 2 if tensor.is_floating_point() else tensor
            torch.testing.assert_close(mean[name], wanted)
    aucs = [epoch.kept_auc for epoch in found.history]
    best = found.history[aucs.index(max(aucs))]
    assert best.is_averaged, "no epoch is as good"
    assert same(dict(found.model.state_dict()), means[best.epoch - 1])
    assert evaluate(found.model, deep.valid).auc == best.averaged_auc


def test_training_itself_does_not_change(deep: Task) -> None:
    found, plain = (pretrain(deep, SETTINGS.model_copy(update={"average": n})) for n in (0.5, 0.0))
    assert [epoch.auc for epoch in found.history] == [epoch.auc for epoch in plain.history]
    assert {epoch.averaged_auc for epoch in plain.history} == {None}
    assert evaluate(plain.model, deep.valid).auc == max(epoch.auc for epoch in plain.history)


@pytest.mark.parametrize("epochs", [1, 3])
def test_an_interrupted_training_ends_with_the_same_bits(deep: Task, tmp_path: Path, epochs: int) -> None:
    whole = pretrain(deep, SETTINGS)
    with pytest.raises(KeyboardInterrupt):
        pretrain(deep, SETTINGS, tmp_path / "a", Stop(epochs))
    again = pretrain(deep, SETTINGS, tmp_path / "a")
    assert numbers(again) == numbers(whole)
    assert same(again.model.state_dict(), whole.model.state_dict())


@pytest.fixture(scope="module")
def small(planted: Dataset) -> tuple[Task, CTRModel]:
    """A task with a full model, and a compact one."""
    task = Task.of(planted, DeepFM(width=4), seed=3, device="cpu")
    task = task.starting_from(pretrain(task, SETTINGS.model_copy(update={"epochs": 2})))
    return task, search(task, Uniform(), "50%").model


@pytest.fixture
def averages_win(monkeypatch: pytest.MonkeyPatch) -> None:
    """Takes the average of the last epoch as the best."""
    monkeypatch.setattr(Epoch, "is_averaged", property(lambda epoch: epoch.averaged_auc is not None))
    monkeypatch.setattr(Epoch, "kept_auc", property(lambda epoch: float(epoch.epoch)))


@pytest.mark.parametrize("schedule", ["constant", "decay"])
@pytest.mark.parametrize("store", ["float32", "float16", "int8", "int4"])
def test_a_retraining_returns_what_it_evaluated(small: tuple[Task, CTRModel], store: str, schedule: str) -> None:
    task, model = small
    found = retrain(task, model, Retrain(**RETRAIN, schedule=schedule, store=store))
    assert {epoch.averaged_auc is None for epoch in found.history[1:]} == {False}
    assert evaluate(found.model, task.valid).auc == max(epoch.kept_auc for epoch in found.history)


@pytest.mark.usefixtures("averages_win")
@pytest.mark.parametrize("schedule", ["constant", "decay"])
@pytest.mark.parametrize("store", ["float32", "float16", "int8", "int4"])
def test_a_retraining_can_end_with_the_average(small: tuple[Task, CTRModel], store: str, schedule: str) -> None:
    task, model = small
    found = retrain(task, model, Retrain(**RETRAIN, schedule=schedule, store=store))
    last = found.history[-1]
    assert evaluate(found.model, task.valid).auc == last.averaged_auc != last.auc


@pytest.mark.parametrize("store", ["float32", "int8", "int4"])
def test_auto_averages_in_a_retraining_that_does_not_round(small: tuple[Task, CTRModel], store: str) -> None:
    task, model = small
    found = retrain(task, model, Retrain(**RETRAIN | {"average": "auto"}, store=store))
    assert {epoch.averaged_auc is None for epoch in found.history[1:]} == {store == "int4"}


@pytest.mark.usefixtures("averages_win")
@pytest.mark.parametrize("store", ["float32", "int4"])
@pytest.mark.parametrize("epochs", [1, 3])
def test_an_interrupted_retraining_ends_with_the_same_average(
    small: tuple[Task, CTRModel], tmp_path: Path, store: str, epochs: int
) -> None:
    found = interrupted(*small, Retrain(**RETRAIN, store=store), tmp_path, Stop(epochs))
    assert evaluate(found.model, small[0].valid).auc == found.history[-1].averaged_auc


class Own(nn.Module):
    """A user's module with an infinite buffer."""

    def __init__(self, fields: int) -> None:
        super().__init__()
        self.table, self.out = nn.Embedding(500, 3), nn.Linear(3 * fields, 1)
        self.register_buffer("mask", torch.tensor([0.0, -torch.inf]))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Logits (B, 1)."""
        logits: torch.Tensor = self.out(self.table(ids % 500).flatten(1)) + self.get_buffer("mask")[0]
        return logits


def test_infinite_entries_of_a_user_s_module_stay(planted: Dataset) -> None:
    model = model_class(lambda schema: Own(len(schema)))()
    found = pretrain(Task.of(planted, model, seed=0, device="cpu"), SETTINGS)
    assert found.history[-1].averaged_auc is not None
    buffers = [buffer for name, buffer in found.model.named_buffers() if name.endswith("mask")]
    assert [buffer.tolist() for buffer in buffers] == [[0.0, float("-inf")]]


def test_auto_averages_small_models(deep: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    model = deep.new_model()
    assert before_of("auto", model, "retrain") == pytest.approx(2 / 3)
    assert before_of("auto", model, "retrain", rounds=True) == 0
    assert before_of(0.9, model, "retrain", rounds=True) == before_of(0.9, model, "retrain") == 0.9
    monkeypatch.setattr(average, "LARGEST", sum(weight.numel() for weight in model.parameters()) - 1)
    assert before_of("auto", model, "retrain") == 0
    assert before_of(0.9, model, "retrain") == 0.9, "as asked for"


def test_what_cannot_be_averaged_is_one_line() -> None:
    check_average("auto", True, "retrain")
    check_average(0, True, "retrain")
    with pytest.raises(
        SettingsError, match=r"^\[retrain\] average = 0.5 keeps a copy of all weights, and tables are sharded"
    ):
        check_average(0.5, True, "retrain")
    _, problems = validate(Pretrain, {"average": 1}, "pretrain")
    assert problems == ["[pretrain] average = 1: input should be less than 1."]
    for stage in ("pretrain", "retrain"):
        with pytest.raises(SettingsError, match=rf"\[{stage}\] average = 0\.5 keeps a copy"):
            RunSettings.parse({
                "run": {"budgets": ["25%"], "tables": "sharded"}, "data": {"name": "planted"}, "model": {"name": "fm"},
                stage: {"average": 0.5},
            })  # fmt: skip
