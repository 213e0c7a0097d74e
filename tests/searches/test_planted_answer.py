"""Planted data has a known answer: user 7, item 5, city 2 columns, noise none; or more for frequent values."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from fieldwise.core.budget import Budget
from fieldwise.data.frame import Frame
from fieldwise.data.planted import Planted
from fieldwise.data.prepare import prepare
from fieldwise.data.rules import Rule
from fieldwise.data.store import Dataset
from fieldwise.models.deepfm import DeepFM
from fieldwise.searches import HAM
from fieldwise.searches.elimination import Elimination
from fieldwise.searches.random import Random
from fieldwise.searches.search import search
from fieldwise.train.evaluate import evaluate
from fieldwise.train.pretraining import Pretrain, pretrain
from fieldwise.train.retraining import Retrain, retrain
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
    widths, aucs = widths_and_aucs(data, 0, Pretrain(**stage, harmful="keep"), HAM(batch=512), Retrain(**stage))
    assert max(widths[3:]) <= 1
    assert min(widths[:3]) >= 2
    assert sum(widths) == 14
    assert aucs[0] > aucs[1] + 0.1


def test_frequent_users_with_more_true_columns_get_more(tmp_path: Path) -> None:
    """40 frequent users multiply four factors with those of items, 120 rare ones only the first."""
    draw = np.random.default_rng(0)
    is_frequent = draw.random(12_000) < 0.6
    user = np.where(is_frequent, draw.integers(0, 40, 12_000), draw.integers(40, 160, 12_000))
    item = draw.integers(0, 30, 12_000)
    users, items = draw.standard_normal((160, 4)), draw.standard_normal((30, 4))
    users[40:, 1:] = 0
    probability = 1 / (1 + np.exp(-1.5 * (users[user] * items[item]).sum(1)))
    rows = pa.table({"user": user, "item": item, "click": (draw.random(12_000) < probability).astype(int)})
    kinds = {"user": Rule(kind="category"), "item": Rule(kind="category")}
    data = prepare(Frame(frame=rows, label="click", fields=kinds, min_count=1, tiers=0.25), tmp_path / "data")
    assert data.schema.cardinalities == (41, 121, 31), "the cut is that of the rows"
    task = Task.of(data, DeepFM(width=6), device="cpu")
    full = pretrain(task, Pretrain(batch=256, epochs=6, learning_rate=0.02)).model
    frequent, rare, _ = search(task.starting_from(full), Elimination(), Budget.columns(9)).mask.widths
    assert frequent >= rare + 2


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_ham_finds_the_planted_widths_and_beats_random(seed: int, tmp_path: Path) -> None:
    data = prepare(Planted(seed=seed), tmp_path / "data")
    (user, item, city, *noise), aucs = widths_and_aucs(data, seed, Pretrain(harmful="keep"), HAM(), Retrain())
    assert user > item > city > max(noise)
    assert max(noise) <= 1
    assert user + item + city + sum(noise) == 14
    assert aucs[0] > aucs[1] + 0.01
