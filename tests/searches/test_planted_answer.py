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


@pytest.mark.parametrize(("frequent", "place"), [(20, 0), (70, 1)], ids=["at 0.1", "at 0.35"])
def test_widths_drop_at_the_planted_cut(frequent: int, place: int, tmp_path: Path) -> None:
    """The frequent ones of 200 users multiply four factors with those of items, the others only the first."""
    draw, rows = np.random.default_rng(0), 30_000
    tier = draw.integers(0, 3, rows)
    user = np.choose(tier, [draw.integers(low, high, rows) for low, high in ((0, 20), (20, 70), (70, 200))])
    item = draw.integers(0, 30, rows)
    users, items = draw.standard_normal((200, 4)), draw.standard_normal((30, 4))
    users[frequent:, 1:] = 0
    probability = 1 / (1 + np.exp(-1.5 * (users[user] * items[item]).sum(1)))
    table = pa.table({"user": user, "item": item, "click": (draw.random(rows) < probability).astype(int)})
    kinds = {"user": Rule(kind="category"), "item": Rule(kind="category")}
    data = prepare(Frame(frame=table, label="click", fields=kinds, min_count=1), tmp_path / "data")
    assert data.schema.cardinalities == (21, 51, 131, 31), "the cuts are those of the rows"
    task = Task.of(data, DeepFM(width=6), device="cpu")
    full = pretrain(task, Pretrain(batch=256, epochs=6, learning_rate=0.02, harmful="keep")).model
    *tiers, _ = search(task.starting_from(full), Elimination(), Budget.columns(12)).mask.widths
    drops = -np.diff(tiers)
    assert drops[place] >= 2
    assert drops[1 - place] <= 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_ham_finds_the_planted_widths_and_beats_random(seed: int, tmp_path: Path) -> None:
    data = prepare(Planted(seed=seed), tmp_path / "data")
    (user, item, city, *noise), aucs = widths_and_aucs(data, seed, Pretrain(harmful="keep"), HAM(), Retrain())
    assert user > item > city > max(noise)
    assert max(noise) <= 1
    assert user + item + city + sum(noise) == 14
    assert aucs[0] > aucs[1] + 0.01
