"""Elimination of columns, against slow references and cases by hand."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from fieldwise.core.errors import TrainingError
from fieldwise.core.registry import resolve
from fieldwise.core.schema import Layout, Schema
from fieldwise.data.batches import Batches
from fieldwise.data.store import Dataset, Split
from fieldwise.models import MODELS
from fieldwise.models.fm import FM
from fieldwise.models.model import HeadModel, OwnModel
from fieldwise.searches import elimination
from fieldwise.searches.elimination import Elimination, expansion, expansion_of, fields_of, groups_of, ranks
from fieldwise.searches.elimination_order import Floats, Order
from fieldwise.searches.search import search
from fieldwise.train.task import Task
from tests.small_models import every_model, trained
from tests.tiered_rows import IDS, SCHEMA


def drawn(columns: int, seed: int = 0) -> tuple[Floats, Floats]:
    random = np.random.default_rng(seed)
    slopes = random.normal(size=(200, columns)) @ random.normal(size=(columns, columns))
    return slopes.mean(0), slopes.T @ slopes / 200


def reference(gradient: Floats, curvature: Floats, costs: Floats, ridge: float) -> list[int]:
    """The order of removal, with the minimum over every remaining set solved again."""
    count = len(gradient)
    lifted = curvature + ridge * curvature.diagonal().mean() * np.eye(count)

    def lowest(kept: list[int]) -> float:
        wanted = (lifted.sum(1) - gradient)[kept]
        return float(-wanted @ np.linalg.solve(lifted[np.ix_(kept, kept)], wanted) / 2) if kept else 0.0

    kept, order = list(range(count)), []
    while kept:
        now = lowest(kept)
        rises = [(lowest([k for k in kept if k != gone]) - now) / costs[gone] for gone in kept]
        order.append(kept.pop(int(np.argmin(rises))))
    return order


@pytest.mark.parametrize("seed", range(4))
def test_columns_go_as_if_every_minimum_were_solved_again(seed: int) -> None:
    gradient, curvature = drawn(9, seed)
    costs = np.array([1, 1, 1, 5, 5, 5, 2, 2, 9])
    found = ranks(gradient, [curvature], costs, [np.arange(9)], 0.01)
    assert np.argsort(found).tolist() == reference(gradient, curvature, costs.astype(float), 0.01)


def test_fields_apart_go_as_one_if_they_share_no_curvature() -> None:
    (first, one), (second, two) = drawn(4, 1), drawn(3, 2)
    joint = np.zeros((7, 7))
    joint[:4, :4], joint[4:, 4:] = one, two
    gradient, costs = np.concatenate([first, second]), np.array([1, 1, 1, 1, 3, 3, 3])
    apart = ranks(gradient, [one, two], costs, [np.arange(4), np.arange(4, 7)], 0.01)
    assert apart.tolist() == ranks(gradient, [joint], costs, [np.arange(7)], 0.01).tolist()


def test_of_two_equal_columns_one_is_kept() -> None:
    """Each can replace the other, so the first goes early and the second late; single scores would drop both."""
    slopes = np.random.default_rng(0).normal(size=(500, 3)) * [2.0, 2.0, 0.8]
    slopes[:, 1] = slopes[:, 0]
    found = ranks(np.zeros(3), [slopes.T @ slopes / 500], np.ones(3, dtype=np.int64), [np.arange(3)], 1e-6)
    assert sorted(found[:2].tolist()) == [0, 2]


@pytest.mark.parametrize("stages", [[8.0], [14.0, 6.0, 1.0]])
def test_a_quadratic_loss_has_one_order_however_often_it_is_expanded(stages: list[float]) -> None:
    gradient, curvature = drawn(9)
    costs, groups, fields = np.array([1, 1, 1, 5, 5, 5, 2, 2, 9]), [np.arange(9)], np.full(9, -1)
    order = Order.of(costs, groups, fields, 1e-12, 1.0)
    for down_to in (*stages, -1.0):
        assert order.cost > down_to
        order.eliminate(gradient + curvature @ (order.masks - 1), [curvature], down_to)
        assert order.cost <= max(0, down_to)
        assert not order.masks[~order.left].any()
    assert order.ranks.tolist() == ranks(gradient, [curvature], costs, groups, 1e-12).tolist()


def test_the_last_column_of_a_field_counts_more() -> None:
    """Fields of three, two and one equal columns, and a first-order weight: only last columns have the factor."""
    fields = np.array([0, 0, 0, 1, 1, 2, -1])
    curvature, costs, groups = np.diag([1, 2, 3, 1.5, 2.5, 2.2, 2.9]), np.ones(7, dtype=np.int64), [np.arange(7)]
    plain = ranks(np.zeros(7), [curvature], costs, groups, 1e-9, fields)
    assert np.argsort(plain).tolist() == [0, 3, 1, 5, 4, 6, 2]
    found = ranks(np.zeros(7), [curvature], costs, groups, 1e-9, fields, last=4.0)
    assert np.argsort(found).tolist() == [0, 3, 1, 6, 5, 4, 2]


def expansions(monkeypatch: pytest.MonkeyPatch) -> list[Floats]:
    """A list that gets the masks of every expansion."""
    found = list[Floats]()

    def counted(*args: Any) -> Any:
        found.append(args[-1])
        return expansion(*args)

    monkeypatch.setattr(elimination, "expansion", counted)
    return found


@pytest.mark.parametrize(("stage", "passes"), [(0.0, 1), (0.5, 3), (0.7, 5)])
def test_the_loss_is_expanded_until_the_budget_is_reached(
    start: Task, stage: float, passes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = expansions(monkeypatch)
    mask = search(start, Elimination(stage=stage), "13%").mask
    assert len(found) == passes
    assert mask.columns
    assert (found[0] == 1).all()
    assert all(len(after) < len(before) for before, after in pairwise(found)), "only of the columns that are left"


@pytest.mark.parametrize(("name", "value"), [("JOINT", 5), ("ROWS_PER_COLUMN", 10**6)])
def test_many_columns_or_few_rows_have_one_expansion(
    start: Task, name: str, value: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their masks are no point to expand around."""
    found = expansions(monkeypatch)
    monkeypatch.setattr(elimination, name, value)
    search(start, Elimination(), "13%")
    assert len(found) == 1


def test_first_order_weights_have_no_factor(start: Task) -> None:
    assert fields_of(start.layout, start.layout.columns + 2)[-3:].tolist() == [len(start.schema) - 1, -1, -1]


@pytest.mark.parametrize("mask", [1.0, 0.4])
def test_the_expansion_is_summed_row_by_row(start: Task, mask: float) -> None:
    model, count = start.starting_model().eval(), start.layout.columns
    at = np.linspace(0, mask, count) if mask < 1 else np.ones(count)
    gradient, (curvature,) = expansion(model, start.valid, count, groups_of(start.layout), at)
    ids, labels = torch.from_numpy(start.valid_rows.ids), torch.from_numpy(start.valid_rows.labels).float()
    rows = []
    for row in range(len(labels)):
        masks = torch.from_numpy(at).float().requires_grad_()
        loss = functional.binary_cross_entropy_with_logits(model(ids[row : row + 1], masks), labels[row : row + 1])
        rows.append(torch.autograd.grad(loss, masks)[0].double())
    slopes = torch.stack(rows).numpy()
    assert gradient == pytest.approx(slopes.mean(0), rel=1e-4, abs=1e-7)
    assert curvature == pytest.approx(slopes.T @ slopes / len(slopes), rel=1e-4, abs=1e-7)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("first", ["whole", "some", "none"])
def test_without_dropped_columns_the_expansion_is_that_of_the_masked_model(
    planted: Dataset, name: str, first: str
) -> None:
    """Whether first-order weights are not counted, some of them dropped, or all."""
    task = Task.of(planted, resolve("model", MODELS, name)(), 1, "cpu")
    model, random = task.new_model(), np.random.default_rng(0)
    assert isinstance(model, HeadModel)
    linear = None if first == "whole" else model.linear
    count = model.layout.columns + (linear.columns if linear else 0)
    left = random.random(count) < 0.5
    if first == "none":
        left[model.layout.columns :] = False
    masks = np.where(left, random.random(count), 0.0)
    gradient, (curvature,) = expansion(model, task.valid, count, [np.arange(count)], masks)
    found, (square,) = expansion_of(left, model, linear, task.valid, masks)
    assert found == pytest.approx(np.where(left, gradient, 0), abs=1e-5 * abs(gradient).max())
    assert square == pytest.approx(np.where(np.outer(left, left), curvature, 0), abs=1e-5 * curvature.max())


@pytest.mark.parametrize("settings", every_model())
def test_tiers_fields_without_columns_and_several_values_are_expanded_alike(settings: OwnModel) -> None:
    widths = (*settings.layout(SCHEMA).widths[:-1], 0)
    model, random = trained(settings, Layout(SCHEMA, widths)), np.random.default_rng(1)
    clicks = random.integers(0, 2, len(IDS)).astype(np.uint8)
    rows, count = Batches(Split(IDS.numpy(), clicks), torch.device("cpu")), model.layout.columns
    left = np.repeat([True, True, False, True, True, True, False], widths) & (random.random(count) < 0.5)
    masks = np.where(left, 0.5 + random.random(count), 0.0)
    gradient, (curvature,) = expansion(model, rows, count, [np.arange(count)], masks)
    found, (square,) = expansion_of(left, model, None, rows, masks)
    assert found == pytest.approx(np.where(left, gradient, 0), abs=1e-5 * abs(gradient).max())
    assert square == pytest.approx(np.where(np.outer(left, left), curvature, 0), abs=1e-5 * curvature.max())


def test_first_order_weights_may_be_all_that_is_left_to_expand(
    planted: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = Task.of(planted, FM(width=4), 1, "cpu")
    counts, fields = list[int](), len(task.schema)

    def made_up(_model: HeadModel, _rows: Batches, count: int, *_: Any) -> tuple[Floats, list[Floats]]:
        """Only first-order weights, which come last, are worth anything, the first one least."""
        counts.append(count)
        return np.zeros(count), [np.diag(np.concatenate([np.full(count - fields, 1e-9), 1 + np.arange(fields)]))]

    monkeypatch.setattr(elimination, "expansion", made_up)
    assert search(replace(task, start=task.new_model()), Elimination(ridge=1e-12), "2% bytes").mask.columns
    full = task.layout.columns + fields
    assert full in counts[1:], "the whole model, where no column is left"


def test_many_columns_are_eliminated_field_by_field(start: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elimination, "JOINT", 5)
    groups = groups_of(start.layout, Schema.of(**dict.fromkeys(start.schema.names, 2)).layout(1))
    owners = np.concatenate([start.layout.owners, np.arange(len(start.schema))])
    assert [set(owners[group]) for group in groups] == [{j} for j in range(len(start.schema))]
    found = search(start, Elimination(), "4 columns")
    assert found.mask.columns == 4


def test_an_empty_column_goes_first(start: Task) -> None:
    model = start.starting_model()
    with torch.no_grad():
        model.embedding.table(0)[:, 2] = 0
    groups = groups_of(start.layout)
    gradient, curvature = expansion(model, start.valid, start.layout.columns, groups, np.ones(start.layout.columns))
    found = ranks(gradient, curvature, np.ones(start.layout.columns, dtype=np.int64), groups, 1e-9)
    assert found[2] == 0


def test_a_model_without_any_slope_still_has_an_order() -> None:
    found = ranks(np.zeros(3), [np.zeros((3, 3))], np.ones(3, dtype=np.int64), [np.arange(3)], 0.01)
    assert sorted(found.tolist()) == [0, 1, 2]


def test_a_model_that_diverged_is_refused() -> None:
    with pytest.raises(TrainingError, match=r"not finite.*diverged"):
        ranks(np.array([np.nan]), [np.ones((1, 1))], np.ones(1, dtype=np.int64), [np.arange(1)], 0.01)
