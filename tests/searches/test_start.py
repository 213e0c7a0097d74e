"""What retraining starts from after a search that trains: slices of the pretrained model, or the searched weights."""

from typing import Any

import pytest
import torch

from fieldwise.core.budget import Budget
from fieldwise.data.store import Dataset
from fieldwise.models.compact import compact
from fieldwise.models.deepfm import DeepFM
from fieldwise.models.model import CTRModel
from fieldwise.pipeline.settings import RunSettings
from fieldwise.searches.search import SearchResult, search
from fieldwise.train.evaluate import evaluate
from fieldwise.train.harmful import without
from fieldwise.train.pretraining import Pretrain, pretrain
from fieldwise.train.task import Task
from tests.memorized import memorized_task
from tests.searches.small_searches import TRAINED, small

SEARCHED = {"start": "searched"}


def found(name: str, task: Task, budget: str, **more: Any) -> tuple[SearchResult, SearchResult]:
    """The result of a search with the default start, and with that of the paper."""
    settings = small(name).model_copy(update=more)
    default, paper = (search(task, each, budget) for each in (settings, settings.model_copy(update=SEARCHED)))
    assert default.mask == paper.mask
    assert default.summary == paper.summary, "the search is the same"
    return default, paper


def same_weights(one: CTRModel, other: CTRModel) -> bool:
    """Whether two models have the same weights, bit by bit."""
    weights, others = one.state_dict(), other.state_dict()
    return weights.keys() == others.keys() and all(torch.equal(weights[key], others[key]) for key in weights)


def test_the_searches_that_train_the_model_have_the_setting() -> None:
    assert sorted(TRAINED) == ["ham", "ham-p", "rounds", "sam", "sam-gs", "sam-sigmoid"]


@pytest.mark.parametrize("name", TRAINED)
@pytest.mark.parametrize("budget", ["7 columns", "40%"])
def test_retraining_starts_from_the_kept_columns_of_the_pretrained_model(name: str, budget: str, start: Task) -> None:
    default, paper = found(name, start, budget)
    assert same_weights(default.model, compact(start.starting_model(), default.mask))
    assert not default.model.training
    assert not same_weights(paper.model, default.model)
    assert paper.summary.selected_auc == evaluate(paper.model, start.valid).auc, "that of the searched weights"


def test_stages_end_with_the_kept_columns_of_the_pretrained_model(start: Task) -> None:
    default, _ = found("ham", start, "7 columns", stages=(Budget.columns(14),))
    assert len(default.traces) == 2
    assert same_weights(default.model, compact(start.starting_model(), default.mask))


@pytest.mark.parametrize("name", TRAINED)
def test_bytes_with_first_order_weights(name: str, planted: Dataset) -> None:
    task = Task.of(planted, DeepFM(width=4), seed=3, device="cpu")
    task = task.starting_from(pretrain(task, Pretrain(batch=512, epochs=1)).model)
    default, paper = found(name, task, "15% bytes int8")
    assert default.model.linear == paper.model.linear == default.mask.linear
    assert same_weights(default.model, compact(task.starting_model(), default.mask))


@pytest.mark.parametrize("name", ["ham", "rounds"])
def test_a_field_that_was_left_out_stays_out(name: str) -> None:
    task = memorized_task()
    task = task.starting_from(without(task.new_model(), ["time"]))
    default, _ = found(name, task, "12%")
    assert "time" not in default.model.needs
    assert same_weights(default.model, compact(task.starting_model(), default.mask))


@pytest.mark.parametrize("name", TRAINED)
def test_the_preset_of_the_paper_starts_from_the_searched_weights(name: str) -> None:
    assert RunSettings.parse({"preset": "paper", "search": {"name": name}}).values()["search"]["start"] == "searched"
    assert RunSettings.parse({"search": {"name": name}}).values()["search"]["start"] == "pretrained"
