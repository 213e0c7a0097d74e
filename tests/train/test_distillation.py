"""Distillation of the full model's predictions."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional

from fieldwise.core.errors import SettingsError, TrainingError
from fieldwise.train.distillation import distilled
from fieldwise.train.evaluate import logits_of
from fieldwise.train.pretraining import Pretrain, pretrain
from fieldwise.train.retraining import Retrain, retrain
from fieldwise.train.task import Task

FAST = Pretrain(batch=512, epochs=3, learning_rate=0.02)


@pytest.fixture
def start(task: Task) -> Task:
    return task.starting_from(pretrain(task, FAST).model)


def test_mixed_labels_give_the_weighted_sum_of_both_losses(start: Task) -> None:
    mixed = torch.from_numpy(distilled(start, 0.3).train_rows.labels)
    assert mixed.dtype == torch.float32
    logits, clicks = logits_of(start.starting_model(), start.train)
    other = torch.randn(len(clicks), generator=torch.Generator().manual_seed(1))
    to_clicks, to_model, to_both = (
        functional.binary_cross_entropy_with_logits(other.double(), target.double())
        for target in (clicks, torch.sigmoid(logits), mixed)
    )
    torch.testing.assert_close(to_both, 0.7 * to_clicks + 0.3 * to_model, rtol=1e-6, atol=0)


def test_only_the_training_labels_change(start: Task) -> None:
    soft = distilled(start, 0.5)
    assert soft.valid_rows is start.valid_rows
    assert soft.train_rows.ids is start.train_rows.ids
    assert np.array_equal(soft.train_rows.labels > 0.5, start.train_rows.labels == 1)
    assert distilled(start, 0.0) is start


def test_a_model_that_learns_from_the_full_one_alone_comes_to_agree_with_it(start: Task) -> None:
    fresh = start.new_model()
    far = {}
    for share in (0.0, 1.0):
        learned = retrain(
            start, fresh, Retrain(batch=512, epochs=6, patience=6, learning_rate=0.02, distil=share)
        ).model
        theirs, _ = logits_of(start.starting_model(), start.valid)
        ours, _ = logits_of(learned, start.valid)
        far[share] = float((torch.sigmoid(ours) - torch.sigmoid(theirs)).abs().mean())
    assert far[1.0] < far[0.0]


def test_without_a_full_model_it_says_what_to_do(task: Task) -> None:
    with pytest.raises(
        TrainingError, match=r"distil = 0.5 needs the full model.*starting_from.*or Retrain\(distil=0\)"
    ):
        retrain(task, task.new_model())


def test_a_task_without_a_starting_model_can_be_retrained_on_clicks(start: Task) -> None:
    task = replace(start, start=None)
    assert len(retrain(task, task.new_model(), Retrain(batch=512, epochs=1, distil=0)).history) == 2


def test_a_task_starts_from_a_result_or_its_model(start: Task) -> None:
    trained = pretrain(replace(start, start=None), Pretrain(batch=512, epochs=2))
    task = start.starting_from(trained)
    assert task.start is trained.model
    assert (task.start_epochs, task.start_best) == (2, trained.best_epoch)
    assert start.starting_from(trained.model).start_epochs is None
    with pytest.raises(SettingsError, match=r"Got a dict\. Allowed: a model\. Pass its model, fw\.pretrain\(task\)\."):
        start.starting_from({})  # type: ignore[arg-type]


def test_a_result_in_place_of_its_model_is_refused(start: Task) -> None:
    trained = retrain(start, start.starting_model(), Retrain(batch=512, epochs=1))
    with pytest.raises(SettingsError, match=r"Got a Trained\. Allowed: a model\. Pass its model, fw\.search"):
        retrain(start, trained)  # type: ignore[arg-type]
