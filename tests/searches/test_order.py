"""Every training within a search has its own order of rows; the first has that of a search with one training."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from fieldwise.core.budget import Budget
from fieldwise.core.records import Epoch
from fieldwise.core.watcher import Watcher
from fieldwise.data.store import Dataset
from fieldwise.models.deepfm import DeepFM
from fieldwise.models.fm import FM
from fieldwise.models.model import CTRModel, Model
from fieldwise.searches import HAM, HamP, SamGS, rounds
from fieldwise.searches.race import Race
from fieldwise.searches.rounds import Rounds
from fieldwise.searches.search import Search, search
from fieldwise.tables.row_factored import row_factored
from fieldwise.tables.summed import Forward
from fieldwise.train.randomness import randomness
from fieldwise.train.retraining import Retrain
from fieldwise.train.task import Task

BUDGET = Budget.columns(6)
SEVERAL: list[Search] = [
    Rounds(rounds=4, epochs=2, batch=1024),
    HAM(epochs=2, batch=1024, stages=("75% columns", "12")),
    SamGS(epochs=2, batch=1024, stages=("75% columns", "12")),
]
"""Three trainings of two epochs each."""
EIGHT = [4, 2, 0, 3, 7, 1, 6, 5]
"""The order of seed 3 in the first epoch of a search."""


@pytest.fixture
def orders(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """The orders of training and validation rows, in the order of drawing."""
    drawn: list[tuple[int, ...]] = []
    draw = torch.randperm

    def noted(count: int, *rest: Any, **options: Any) -> Tensor:
        order = draw(count, *rest, **options)
        drawn.append(tuple(order.tolist()))
        return order

    monkeypatch.setattr(torch, "randperm", noted)
    return drawn


def of_training(task: Task, orders: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """The orders of the training rows."""
    return [order for order in orders if len(order) == len(task.train)]


@pytest.mark.parametrize("settings", SEVERAL, ids=lambda s: type(s).__name__)
def test_no_training_repeats_the_order_of_another(settings: Search, start: Task, orders: list[tuple[int, ...]]) -> None:
    search(start, settings, BUDGET)
    assert len(of_training(start, orders)) == 6
    assert len(set(orders)) == len(orders), "of validation rows too"


def test_the_first_training_draws_what_the_only_one_draws(start: Task, orders: list[tuple[int, ...]]) -> None:
    search(start, HAM(epochs=1, batch=1024), BUDGET)
    only = list(orders)
    orders.clear()
    search(start, HAM(epochs=1, batch=1024, stages=("75% columns",)), BUDGET)
    assert orders[: len(only)] == only
    with randomness(start.seed, "search", 1):
        assert tuple(torch.randperm(len(start.train)).tolist()) == of_training(start, only)[0]
    with randomness(3, "search", 1):
        assert torch.randperm(8).tolist() == EIGHT, "published results of single trainings rest on these draws"


class Cut(Watcher):
    """Raises in the second training, like a power cut."""

    def __init__(self) -> None:
        self.begun = 0

    def epoch(self, stage: str, epoch: Epoch) -> None:
        self.begun += epoch.epoch == 0
        if self.begun == 2 and epoch.epoch == 1:
            raise KeyboardInterrupt


@pytest.mark.parametrize(
    "settings", [*SEVERAL[:2], HamP(epochs=2, batch=1024, stages=("12",))], ids=lambda s: type(s).__name__
)
def test_a_search_cut_in_its_second_training_ends_with_the_same_bits(
    settings: Search, start: Task, tmp_path: Path
) -> None:
    whole = search(start, settings, BUDGET)
    with pytest.raises(KeyboardInterrupt):
        search(start, settings, BUDGET, tmp_path, Cut())
    resumed = search(start, settings, BUDGET, tmp_path)
    assert (resumed.mask, resumed.summary) == (whole.mask, whole.summary)
    weights, again = whole.model.state_dict(), resumed.model.state_dict()
    assert all(torch.equal(weights[key], again[key]) for key in weights)


def test_entrants_of_a_race_are_trained_as_they_would_be_alone(start: Task) -> None:
    several: dict[str, Search] = {
        "rounds": Rounds(rounds=3, batch=1024),
        "ham": HAM(epochs=1, batch=1024, stages=("12",)),
    }
    for name, single in several.items():
        race = Race(entrants={name: single.values()}, retrain=Retrain(batch=2048, epochs=1))
        won, found = search(start, race, BUDGET), search(start, single, BUDGET)
        assert won.mask == found.mask
        weights, theirs = won.model.state_dict(), found.model.state_dict()
        assert all(torch.equal(weights[key], theirs[key]) for key in weights)


@pytest.mark.parametrize("model", [FM(width=4), DeepFM(width=4, hidden=(8,))])
def test_rounds_train_each_narrower_model_row_by_row(
    planted: Dataset, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    task, seen = Task.of(planted, model, device="cpu"), list[int]()
    task = task.starting_from(task.new_model())

    def noted(narrow: CTRModel, batch: int) -> Forward:
        forward = row_factored(narrow)
        assert forward is not narrow
        assert batch == 512

        def noting(ids: Tensor) -> Tensor:
            seen.append(narrow.layout.columns)
            return forward(ids)

        return noting

    settings = Rounds(rounds=3, batch=512)
    monkeypatch.setattr("fieldwise.tables.row_factored.PLACES", 1)  # small batches go by rows too
    plainly = search(task, settings, BUDGET)
    monkeypatch.setattr(rounds, "row_factored", noted)
    found = search(task, settings, BUDGET)
    assert found.mask == plainly.mask
    steps = -(-len(task.train) // 512)
    assert seen == [15] * steps + [10] * steps
