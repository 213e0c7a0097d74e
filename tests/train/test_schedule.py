"""Retraining with a learning rate that decays."""

from pathlib import Path

import pytest

from fieldwise.core.settings import validate
from fieldwise.data.store import Dataset
from fieldwise.models.deepfm import DeepFM
from fieldwise.searches.search import search
from fieldwise.searches.uniform import Uniform
from fieldwise.tables import optimizer
from fieldwise.tables.optimizer import Optimizer
from fieldwise.tables.rate import Rate
from fieldwise.train.evaluate import evaluate
from fieldwise.train.stages import Decay, Pretrain, Retrain, pretrain, retrain
from fieldwise.train.task import Task
from tests.trainings import Stop, numbers, same

DECAY = Retrain(batch=256, learning_rate=0.01, decay=Decay(rate=1, table_rate=3), patience=1)


@pytest.fixture(scope="module")
def start(planted: Dataset) -> Task:
    task = Task.of(planted, DeepFM(width=4), seed=3, device="cpu")
    return task.starting_from(pretrain(task, Pretrain(batch=512, epochs=1, learning_rate=0.02)).model)


def test_all_epochs_run_with_falling_rates(start: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    plain = Optimizer.at

    def noted(self: Optimizer, step: int) -> None:
        seen.append(step)
        plain(self, step)

    monkeypatch.setattr(Optimizer, "at", noted)
    model = search(start, Uniform(), "50%").model
    found = retrain(start, model, DECAY.model_copy(update={"learning_rate": 0.5}))  # too fast: the first is the best
    assert [epoch.epoch for epoch in found.history] == [0, 1, 2, 3], "no early stopping"
    assert evaluate(found.model, start.valid).auc == max(epoch.auc for epoch in found.history), "the best is kept"
    steps = -(-len(start.train) // 256)
    assert seen == list(range(3 * steps))
    assert Rate(0.01, 3 * steps).at(seen[-1]) < 0.01 * 0.02


@pytest.mark.parametrize("large", [0, 2])
@pytest.mark.parametrize("store", [None, "int4"])
def test_an_interrupted_retraining_ends_with_the_same_bits(
    start: Task, tmp_path: Path, large: int, store: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(optimizer, "LARGE", {"cpu": large})
    settings = DECAY.model_copy(update={"store": Retrain(store=store).store, "epochs": 2})
    model = search(start, Uniform(), "50%").model
    whole = retrain(start, model, settings)
    with pytest.raises(KeyboardInterrupt):
        retrain(start, model, settings, tmp_path / "a", Stop(1))
    again = retrain(start, model, settings, tmp_path / "a")
    assert numbers(again) == numbers(whole)
    assert same(again.model.state_dict(), whole.model.state_dict())


def test_a_bad_schedule_is_one_line() -> None:
    _, problems = validate(Retrain, {"schedule": "cosine", "decay": {"table_rate": 0}}, "retrain")
    assert len(problems) == 2
    assert "schedule" in problems[0]
