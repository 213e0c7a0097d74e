"""Pretraining joins the tiers of a column: it trains the model of rows without tiers, and splits its tables."""

from pathlib import Path

import numpy as np
import pytest
import torch

from fieldwise.data.joined import JoinedIds
from fieldwise.data.sharded import ShardedArray
from fieldwise.models.fm import FM
from fieldwise.models.model import HeadModel, OwnModel
from fieldwise.searches.search import search
from fieldwise.searches.uniform import Uniform
from fieldwise.train.evaluate import predictions
from fieldwise.train.pretraining import Pretrain, pretrain
from fieldwise.train.retraining import Retrain, retrain
from fieldwise.train.task import Task
from tests.memorized import SCHEMA, SETTINGS, TIERS, memorized_task, tiered, tiered_task
from tests.small_models import every_model
from tests.trainings import Stop, numbers, same

FAST = Pretrain(batch=256, learning_rate=0.01, epochs=2, harmful="keep")


def tasks(model: OwnModel) -> tuple[Task, Task]:
    """The task with tiers, and without."""
    return tiered_task(model), memorized_task(model)


@pytest.mark.parametrize("shards", [1, 3])
def test_joined_ids_are_those_of_rows_without_tiers(shards: int) -> None:
    assert TIERS.joined == SCHEMA
    split = memorized_task().valid_rows
    with_tiers = np.asarray(tiered(split).ids)
    parts = np.array_split(with_tiers, shards)
    found = JoinedIds(with_tiers if shards == 1 else ShardedArray(parts), TIERS)
    wanted = np.asarray(split.ids)
    assert (wanted[:, 2] == 0).any(), "some users are unknown"
    assert (wanted[:, 1] == -1).any(), "some rows have one tag"
    assert (found.shape, len(found), found.nbytes) == (wanted.shape, len(wanted), wanted.nbytes)
    assert found[:10].dtype == wanted.dtype
    assert np.array_equal(found, wanted)
    for rows in (slice(7, 900), np.array([5, 0, 5]), wanted[:, 4] == 3):
        assert np.array_equal(found[rows], wanted[rows])


@pytest.mark.parametrize("settings", every_model())
@pytest.mark.parametrize("small", [0, 2**28], ids=["computed", "in memory"])
def test_pretraining_with_tiers_is_that_without(
    settings: OwnModel, small: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fieldwise.data.joined.SMALL", small)
    task, plain = tasks(settings)
    assert isinstance(task.joined().train_rows.ids, np.ndarray if small else JoinedIds)
    assert plain.joined() is plain
    found, wanted = pretrain(task, FAST), pretrain(plain, FAST)
    assert numbers(found) == numbers(wanted)
    assert found.model.layout == task.layout
    logits, _ = predictions(found.model, task.valid_rows)
    torch.testing.assert_close(logits, predictions(wanted.model, plain.valid_rows)[0], atol=1e-5, rtol=1e-5)


def test_a_harmful_column_is_left_out_with_all_its_tiers() -> None:
    task, plain = tasks(FM(width=4))
    found, wanted = pretrain(task, SETTINGS), pretrain(plain, SETTINGS)
    assert [harm.field for harm in found.harms if harm.left_out] == ["time"]
    assert found.harms == wanted.harms
    assert numbers(found) == numbers(wanted)
    start = task.starting_from(found)
    assert start.left_out == {4, 5}
    assert not any(search(start, Uniform(), "50%").mask.widths[4:6])
    logits, _ = predictions(found.model, task.valid_rows)
    torch.testing.assert_close(logits, predictions(wanted.model, plain.valid_rows)[0], atol=1e-5, rtol=1e-5)


def test_an_interrupted_pretraining_with_tiers_ends_with_the_same_bits(tmp_path: Path) -> None:
    task, _ = tasks(FM(width=4))
    whole = pretrain(task, FAST)
    with pytest.raises(KeyboardInterrupt):
        pretrain(task, FAST, tmp_path / "a", Stop(1))
    again = pretrain(task, FAST, tmp_path / "a")
    assert numbers(again) == numbers(whole)
    assert same(again.model.state_dict(), whole.model.state_dict())


def test_a_model_with_tiers_is_trained_further_as_it_is() -> None:
    task, _ = tasks(FM(width=4))
    start = task.starting_from(pretrain(task, FAST))
    further = pretrain(start, FAST)
    assert isinstance(further.model, HeadModel)
    best = max(epoch.kept_auc for epoch in pretrain(task, FAST).history)
    assert further.history[0].auc == pytest.approx(best, abs=1e-9)


def test_a_search_and_int4_follow() -> None:
    task, _ = tasks(FM(width=4))
    start = task.starting_from(pretrain(task, FAST))
    found = search(start, Uniform(), "40%")
    small = retrain(start, found.model, Retrain(batch=256, store="int4"))
    assert max(epoch.auc for epoch in small.history) > 0.6
