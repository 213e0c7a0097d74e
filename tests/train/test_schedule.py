"""Retraining with a learning rate that decays."""

import math
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
from fieldwise.train.decay import Decay, plain_epochs, steps_of
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


@pytest.mark.parametrize("epochs", [2, 2.5, 3])
def test_all_epochs_run_with_falling_rates(start: Task, epochs: float, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[float] = []
    plain = Optimizer.at

    def noted(self: Optimizer, step: int) -> None:
        assert step == len(seen)
        plain(self, step)
        seen.append(self._adam.param_groups[0]["lr"])

    monkeypatch.setattr(Optimizer, "at", noted)
    model = search(start, Uniform(), "50%").model
    course = Decay(rate=1, table_rate=3, epochs=epochs)
    too_fast = DECAY.model_copy(update={"learning_rate": 0.5, "decay": course})  # the first is the best
    found = retrain(start, model, too_fast)
    assert [epoch.epoch for epoch in found.history] == [0, 1, 2, 3][: 1 + math.ceil(epochs)], "no early stopping"
    assert evaluate(found.model, start.valid).auc == max(epoch.kept_auc for epoch in found.history), "the best is kept"
    steps = math.ceil(epochs * -(-len(start.train) // 256))
    assert seen == [Rate(0.5, steps).at(step) for step in range(steps)], "the last epoch may end early"


def test_rates_follow_from_the_best_epoch_of_pretraining() -> None:
    assert [Decay().rates(1e-3, 256, best) for best in (None, 0, 2, 3)] == [(8,), (8, 1), (8, 1), (8,)]
    assert Decay(rate=3).rates(1e-3, 256, 1) == (3,)


def test_large_batches_have_a_higher_rate_and_a_higher_limit() -> None:
    assert [Decay().rates(1e-3, batch, 9) for batch in (2, 2047, 2048, 65_536)] == [(8,), (8,), (16,), (16,)]
    assert Decay().rates(1e-3, 2048, 1) == (16, 1)
    assert Decay().rates(0.004, 2048, 9) == (5,)
    assert Decay(rate=3).rates(1e-3, 2048, 9) == (3,)


def test_epochs_follow_from_pretraining() -> None:
    assert [Decay().epochs_of(epochs) for epochs in (None, 1, 4, 5)] == [3, 2, 2, 3]
    rounded = {None: 3, 1: 2, 4: 2, 5: 2.5, 6: 3, 11: 5.5, 14: 7}
    assert {epochs: Decay().epochs_of(epochs, rounds=True) for epochs in rounded} == rounded
    assert [Decay(epochs=3.5).epochs_of(10, rounds) for rounds in (False, True)] == [3.5, 3.5]
    assert [Decay().epochs_of(epochs) for epochs in range(6, 14)] == [3.5, 4, 4.5, 5, 6, 7, 7, 8]
    assert [plain_epochs(epochs) for epochs in (1, 1.5, 2, 2.5, 3, 3.5, 8)] == [0, 0, 1, 1, 2, 2, 4]


def test_a_fraction_without_a_step_is_no_epoch(start: Task) -> None:
    model, course = search(start, Uniform(), "50%").model, Decay(rate=1, epochs=2.00000001)
    found = retrain(start, model, DECAY.model_copy(update={"decay": course}))
    assert len(found.history) == 3


@pytest.mark.parametrize(("epochs", "each", "steps"), [(1.1, 100, 110), (2.5, 289, 723), (3, 7, 21), (1.001, 100, 101)])
def test_a_last_epoch_may_have_any_fraction_of_the_steps(epochs: float, each: int, steps: int) -> None:
    assert steps_of(epochs, each) == steps


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
@pytest.mark.parametrize(("store", "epochs"), [(None, 2), ("int4", 2), (None, 1.5), ("int4", 2.5)])
def test_an_interrupted_retraining_ends_with_the_same_bits(
    start: Task, tmp_path: Path, large: int, store: str | None, epochs: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(optimizer, "LARGE", {"cpu": large})
    course = Decay(rate=1, table_rate=3, epochs=epochs)
    settings = DECAY.model_copy(update={"store": Retrain(store=store).store, "decay": course})
    interrupted(start, search(start, Uniform(), "50%").model, settings, tmp_path, Stop(1))


def test_no_more_epochs_run_than_the_training_allows(start: Task) -> None:
    course = DECAY.model_copy(update={"epochs": 1, "decay": Decay(epochs=1.5)})
    assert len(retrain(start, search(start, Uniform(), "50%").model, course).history) == 2


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
    values = {"schedule": "cosine", "decay": {"table_rate": 0, "rate": "fast", "epochs": 0.5}}
    _, problems = validate(Retrain, values, "retrain")
    assert len(problems) == 4
    assert "schedule" in problems[0]
