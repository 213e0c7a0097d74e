"""Planted data has a known answer: user 7, item 5, city 2 columns, noise none."""

from pathlib import Path

import pytest

from fieldwise.core.budget import Budget
from fieldwise.data.planted import Planted
from fieldwise.data.prepare import prepare
from fieldwise.searches import HAM
from fieldwise.searches.random import Random
from fieldwise.searches.search import search
from fieldwise.train.evaluate import evaluate
from fieldwise.train.stages import pretrain, retrain
from fieldwise.train.task import Task


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2, 3, 4))])
def test_ham_finds_the_planted_widths_and_beats_random(seed: int, tmp_path: Path) -> None:
    data = prepare(Planted(seed=seed), tmp_path / "data")
    task = Task.of(data, seed=seed, device="cpu")
    start = task.starting_from(pretrain(task).model)
    budget = Budget.columns(14)
    found = search(start, HAM(), budget)
    user, item, city, *noise = found.mask.widths
    assert user > item > city > max(noise)
    assert max(noise) <= 1
    assert found.mask.columns == 14
    lot = search(start, Random(), budget)
    aucs = [evaluate(retrain(start, result.model).model, task.valid).auc for result in (found, lot)]
    assert aucs[0] > aucs[1] + 0.01
