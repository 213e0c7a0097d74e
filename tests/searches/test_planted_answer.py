"""Planted data has a known answer: user 7, item 5, city 2 columns, noise none."""

from pathlib import Path

import pytest

from fieldwise.core.budget import Budget
from fieldwise.data.planted import Planted
from fieldwise.data.prepare import prepare
from fieldwise.data.store import Dataset
from fieldwise.searches import HAM
from fieldwise.searches.random import Random
from fieldwise.searches.search import search
from fieldwise.train.evaluate import evaluate
from fieldwise.train.stages import Pretrain, Retrain, pretrain, retrain
from fieldwise.train.task import Task


def widths_and_aucs(
    data: Dataset, seed: int, first: Pretrain, method: HAM, last: Retrain
) -> tuple[tuple[int, ...], list[float]]:
    """The widths that a search finds for 14 columns; and validation AUCs of its model and of a random one."""
    task = Task.of(data, seed=seed, device="cpu")
    start = task.starting_from(pretrain(task, first).model)
    results = [search(start, chosen, Budget.columns(14)) for chosen in (method, Random())]
    aucs = [evaluate(retrain(start, result.model, last).model, task.valid).auc for result in results]
    return results[0].mask.widths, aucs


def test_noise_gets_no_columns_and_the_others_beat_random_ones(tmp_path: Path) -> None:
    """On few rows of a strong signal, where the order of widths is not certain; the slow test has that."""
    data = prepare(Planted(rows=50_000, signal=4.0), tmp_path / "data")
    stage = {"batch": 512, "learning_rate": 0.01, "epochs": 8}
    widths, aucs = widths_and_aucs(data, 0, Pretrain(**stage), HAM(batch=512), Retrain(**stage))
    assert max(widths[3:]) <= 1
    assert min(widths[:3]) >= 2
    assert sum(widths) == 14
    assert aucs[0] > aucs[1] + 0.1


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_ham_finds_the_planted_widths_and_beats_random(seed: int, tmp_path: Path) -> None:
    data = prepare(Planted(seed=seed), tmp_path / "data")
    (user, item, city, *noise), aucs = widths_and_aucs(data, seed, Pretrain(), HAM(), Retrain())
    assert user > item > city > max(noise)
    assert max(noise) <= 1
    assert user + item + city + sum(noise) == 14
    assert aucs[0] > aucs[1] + 0.01
