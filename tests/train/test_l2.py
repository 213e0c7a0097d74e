"""Squares of the weights of tables in the loss of a retraining."""

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from fieldwise.core.automatic import AUTO
from fieldwise.core.errors import SettingsError
from fieldwise.core.settings import validate
from fieldwise.core.store import Store
from fieldwise.data.store import Dataset
from fieldwise.models.deepfm import DeepFM
from fieldwise.models.model import HeadModel
from fieldwise.pipeline.settings import RunSettings
from fieldwise.searches.search import search
from fieldwise.searches.uniform import Uniform
from fieldwise.tables import optimizer
from fieldwise.tables.optimizer import table_weights
from fieldwise.train import l2
from fieldwise.train.decay import Decay
from fieldwise.train.l2 import penalty, strength_of
from fieldwise.train.pretraining import Pretrain, pretrain
from fieldwise.train.regularity import SoftOrthogonality
from fieldwise.train.retraining import Retrain, retrain
from fieldwise.train.task import Task
from tests.trainings import Stop, interrupted, same

PLAIN = Retrain(batch=256, learning_rate=0.01, schedule="constant", epochs=2, l2=0)
SQUARES = PLAIN.model_copy(update={"l2": 0.5})


@pytest.fixture(scope="module")
def start(planted: Dataset) -> Task:
    task = Task.of(planted, DeepFM(width=4), seed=3, device="cpu")
    return task.starting_from(pretrain(task, Pretrain(batch=512, epochs=1, learning_rate=0.02, harmful="keep")).model)


@pytest.fixture(scope="module")
def small(start: Task) -> HeadModel:
    found = search(start, Uniform(), "50%").model
    assert isinstance(found, HeadModel)
    return found


def norm(model: nn.Module) -> float:
    return sum(float(weight.detach().square().sum()) for weight in table_weights(model))


def test_the_gradient_of_every_row_is_its_weight_over_the_rows_of_a_batch(small: HeadModel) -> None:
    of_weights = penalty(small, 0.5, 256)
    assert of_weights is not None
    weights = table_weights(small)
    assert sum(weight.numel() for weight in weights) == small.size().embedding + small.size().first_order
    for weight, grad in zip(weights, torch.autograd.grad(of_weights(), weights), strict=True):
        torch.testing.assert_close(grad, weight.detach() * (0.5 / 256))
    assert penalty(small, 0.0, 256) is None


def test_first_order_weights_of_harmful_fields_are_spared(small: HeadModel) -> None:
    spared, of_weights = 1, penalty(small, 0.5, 256, left_out={1})
    assert of_weights is not None
    assert small.first_order is not None
    weights = table_weights(small)
    for weight, grad in zip(weights, torch.autograd.grad(of_weights(), weights), strict=True):
        weight.grad = grad
    for j in range(len(small.schema)):
        for module, scale in ((small.embedding, 1), (small.first_order, int(j != spared))):
            table, rows = module.span(j)
            assert table.grad is not None
            torch.testing.assert_close(table.grad[rows], scale * table.detach()[rows] * (0.5 / 256))
    for weight in weights:
        weight.grad = None


@pytest.mark.parametrize("left_out", [set[int](), {1}])
def test_the_value_is_half_the_squares(small: HeadModel, left_out: set[int]) -> None:
    of_weights = penalty(small, 0.5, 256, left_out)
    assert of_weights is not None
    assert small.first_order is not None
    spared = sum(float(small.first_order.table(j).detach().square().sum()) for j in left_out)
    assert of_weights().item() == pytest.approx((norm(small) - spared) / 2 * 0.5 / 256, rel=1e-5)


def test_rows_that_no_batch_reads_shrink_too(start: Task, small: HeadModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where tables are so large that only rows in a batch would move."""
    monkeypatch.setattr(optimizer, "LARGE", {"cpu": 0})
    small, unread = deepcopy(small), 0  # the id of `unknown`, which no training row has
    assert not (start.train_rows.ids[:, 0] == unread).any()
    with torch.no_grad():
        small.embedding.table(0)[unread] = 0.5
    plain, squares = (retrain(start, small, settings).model for settings in (PLAIN, SQUARES))
    assert isinstance(plain, HeadModel)
    assert isinstance(squares, HeadModel)
    assert norm(squares) < 0.9 * norm(plain)
    assert (plain.embedding.table(0)[unread] == 0.5).all()
    assert (squares.embedding.table(0)[unread] < 0.4).all()


def test_auto_is_zero_for_large_tables_and_where_it_is_not_possible(
    small: HeadModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Retrain().l2 == AUTO
    assert strength_of(AUTO, small, "adam") == strength_of(AUTO, small, "dense-adam") == 0.003
    assert strength_of(AUTO, small, "adam", rounds=True) == 0.01
    assert strength_of(AUTO, small, "rowwise-adagrad") == strength_of(AUTO, small, "rowwise-adagrad", rounds=True) == 0
    monkeypatch.setattr(l2, "LARGEST", sum(weight.numel() for weight in table_weights(small)) - 1)
    assert strength_of(AUTO, small, "adam") == strength_of(AUTO, small, "adam", rounds=True) == 0
    assert strength_of(0.2, small, "adam") == strength_of(0.2, small, "adam", rounds=True) == 0.2


@pytest.mark.parametrize(("store", "strength"), [("int4", 0.01), ("int8", 0.003)])
def test_auto_is_higher_where_tables_are_rounded(start: Task, small: HeadModel, store: str, strength: float) -> None:
    settings = Retrain(batch=256, decay=Decay(epochs=2), store=Store.parse(store))
    told = settings.model_copy(update={"l2": strength})
    found, same_strength = (retrain(start, small, one) for one in (settings, told))
    assert same(found.model.state_dict(), same_strength.model.state_dict())


def test_row_wise_optimizers_refuse_what_moves_every_row(start: Task, small: HeadModel) -> None:
    by_row: Any = {"optimizer": "rowwise-adagrad"}
    with pytest.raises(SettingsError, match=r"l2 = 0.5 moves every row.*only rows that a batch reads.*Leave l2 out"):
        retrain(start, small, SQUARES.model_copy(update=by_row))
    loss = SoftOrthogonality(form="raw", place="loss")
    with pytest.raises(SettingsError, match=r"place = 'loss' moves every row.*Choose place = 'step', or adam"):
        pretrain(start, Pretrain(regularity=loss, **by_row))


@pytest.mark.parametrize("more", [{"retrain": {"optimizer": "rowwise-adagrad"}}, {"run": {"tables": "sharded"}}])
def test_a_run_refuses_it_before_any_work(more: dict[str, dict[str, str]]) -> None:
    tables: dict[str, Any] = {"run": {"budgets": ["50%"]}, "data": {"name": "planted"}, "retrain": {"l2": 0.5}}
    given = {name: {**tables[name], **more.get(name, {})} for name in tables}
    with pytest.raises(SettingsError, match=r"l2 = 0.5 moves every row.*Leave l2 out"):
        RunSettings.parse(given)
    by_row = {"optimizer": "rowwise-adagrad", "regularity": {"place": "loss"}}
    with pytest.raises(SettingsError, match=r"place = 'loss' moves every row"):
        RunSettings.parse({"run": tables["run"], "data": tables["data"], "pretrain": by_row})
    RunSettings.parse({**given, "retrain": {**given["retrain"], "l2": "auto"}})


@pytest.mark.parametrize("text", [-1, float("inf"), "much"])
def test_a_bad_strength_is_one_line(text: object) -> None:
    _, (problem,) = validate(Retrain, {"l2": text}, "retrain")
    assert "l2" in problem
    assert "\n" not in problem


@pytest.mark.parametrize("store", [None, Store("int4")], ids=str)
def test_an_interrupted_retraining_resumes_with_the_same_weights(
    start: Task, small: HeadModel, store: Store | None, tmp_path: Path
) -> None:
    interrupted(start, small, SQUARES.model_copy(update={"store": store}), tmp_path, Stop(1))
