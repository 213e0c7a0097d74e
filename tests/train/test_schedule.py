"""Retraining with a learning rate that decays."""

from dataclasses import replace
from pathlib import Path

import pytest

from fieldwise.core.records import Epoch
from fieldwise.core.settings import validate
from fieldwise.core.store import Store
from fieldwise.core.watcher import Watcher
from fieldwise.data.store import Dataset
from fieldwise.models.deepfm import DeepFM
from fieldwise.searches.search import search
from fieldwise.searches.uniform import Uniform
from fieldwise.tables import optimizer
from fieldwise.tables.optimizer import Optimizer
from fieldwise.tables.rate import Rate
from fieldwise.train import decay
from fieldwise.train.decay import Decay, plain_epochs
from fieldwise.train.evaluate import evaluate
from fieldwise.train.harmful import without
from fieldwise.train.pretraining import Pretrain, pretrain
from fieldwise.train.retraining import Retrain, retrain
from fieldwise.train.task import Task
from tests.memorized import memorized_task
from tests.trainings import Stop, interrupted, numbers, same

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
    assert evaluate(found.model, start.valid).auc == max(epoch.kept_auc for epoch in found.history), "the best is kept"
    steps = -(-len(start.train) // 256)
    assert seen == list(range(3 * steps))
    assert Rate(0.01, 3 * steps).at(seen[-1]) < 0.01 * 0.02


def test_rates_follow_from_the_best_epoch_of_pretraining() -> None:
    assert [Decay().rates(1e-3, 256, best) for best in (None, 0, 2, 3)] == [(8,), (8, 1), (8, 1), (8,)]
    assert Decay(rate=3).rates(1e-3, 256, 1) == (3,)


def test_large_batches_have_a_higher_rate_and_a_higher_limit() -> None:
    assert [Decay().rates(1e-3, batch, 9) for batch in (2, 2047, 2048, 65_536)] == [(8,), (8,), (16,), (16,)]
    assert Decay().rates(1e-3, 2048, 1) == (16, 1)
    assert Decay().rates(0.004, 2048, 9) == (5,)
    assert Decay(rate=3).rates(1e-3, 2048, 9) == (3,)


def test_epochs_follow_from_pretraining() -> None:
    assert [Decay().epochs_of(epochs) for epochs in (None, 1, 10)] == [3, 2, 6]
    assert Decay(epochs=4).epochs_of(10) == 4
    assert [plain_epochs(epochs) for epochs in (1, 2, 3, 8)] == [0, 1, 2, 4]


def test_auto_raises_no_rate_above_a_hundredth() -> None:
    assert Decay().rates(1e-4, 256, 9) == (8,)
    assert Decay().rates(0.004, 256, 1) == (2.5, 1)
    assert Decay().rates(0.02, 256, 1) == (1,)
    assert Decay().rates(0.02, 2048, 1) == (1,)
    assert Decay(rate=8).rates(0.02, 256, 1) == (8,)


@pytest.fixture
def any_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets `auto` raise any rate, so that the higher one can be too high."""
    monkeypatch.setattr(decay, "TOP", 1.0)


@pytest.mark.usefixtures("any_rate")
@pytest.mark.parametrize("learning_rate", [0.005, 1e-3], ids=["too fast", "too slow"])
@pytest.mark.parametrize("store", [Store("float32"), Store("int4")], ids=str)
def test_after_a_pretraining_that_overfits_soon_a_rate_whose_first_epoch_is_worse_is_given_up(
    start: Task, learning_rate: float, store: Store
) -> None:
    early, model = replace(start, start_best=1), search(start, Uniform(), "50%").model
    settings = Retrain(batch=512, learning_rate=learning_rate, store=store, decay=Decay(epochs=2))
    heard = _Notes()
    found = retrain(early, model, settings, watcher=heard)
    fast, slow = (
        retrain(start, model, settings.model_copy(update={"decay": Decay(epochs=2, rate=rate)})) for rate in (8, 1)
    )
    too_fast = fast.history[1].auc < fast.history[0].auc - 0.005
    assert too_fast == (learning_rate == 0.005), "each rate is right once"
    kept = slow if too_fast else fast
    assert numbers(found) == numbers(kept)
    assert same(found.model.state_dict(), kept.model.state_dict())
    assert (found.other_seconds > 0) == too_fast, "the epoch that was given up counts"
    assert len(heard.notes) == too_fast
    if too_fast:
        before, after = (epoch.auc for epoch in fast.history[:2])
        assert heard.notes[0].startswith(
            f"After an epoch at rate 8, validation AUC was {after:.4f}, less than {before:.4f}"
        )


class _Notes(Watcher):
    """Keeps notes."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


@pytest.mark.parametrize("large", [0, 2])
@pytest.mark.parametrize("store", [None, "int4"])
def test_an_interrupted_retraining_ends_with_the_same_bits(
    start: Task, tmp_path: Path, large: int, store: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(optimizer, "LARGE", {"cpu": large})
    settings = DECAY.model_copy(update={"store": Retrain(store=store).store, "epochs": 2})
    interrupted(start, search(start, Uniform(), "50%").model, settings, tmp_path, Stop(1))


def test_the_rate_follows_from_the_batch(start: Task) -> None:
    model = search(start, Uniform(), "50%").model
    settings = Retrain(batch=2048, learning_rate=1e-3, decay=Decay(epochs=1))
    told = settings.model_copy(update={"decay": Decay(epochs=1, rate=16)})
    found, wanted = (retrain(start, model, one) for one in (settings, told))
    assert same(found.model.state_dict(), wanted.model.state_dict())


def test_an_interrupted_retraining_with_slow_first_order_weights_ends_with_the_same_bits(tmp_path: Path) -> None:
    task = memorized_task()
    model = without(task.new_model(), ["time"], ["time"])
    task, settings = task.starting_from(model), Retrain(batch=512, decay=Decay(epochs=2, rate=8))
    interrupted(task, model, settings, tmp_path, Stop(1))


class _StopAt(Watcher):
    """Raises after the first epoch of the training at one rate."""

    def __init__(self, place: int) -> None:
        self._left = place

    def epoch(self, stage: str, epoch: Epoch) -> None:
        self._left -= epoch.epoch == 1
        if self._left < 0:
            raise KeyboardInterrupt


@pytest.mark.usefixtures("any_rate")
@pytest.mark.parametrize("place", [0, 1])
def test_an_interruption_at_either_rate_ends_with_the_same_bits(start: Task, tmp_path: Path, place: int) -> None:
    early, model = replace(start, start_best=1), search(start, Uniform(), "50%").model
    settings = Retrain(batch=512, learning_rate=0.005, decay=Decay(epochs=2))
    whole = interrupted(early, model, settings, tmp_path, _StopAt(place))
    assert whole.other_seconds > 0, "both rates are trained"


def test_a_bad_schedule_is_one_line() -> None:
    values = {"schedule": "cosine", "decay": {"table_rate": 0, "rate": "fast"}}
    _, problems = validate(Retrain, values, "retrain")
    assert len(problems) == 3
    assert "schedule" in problems[0]
