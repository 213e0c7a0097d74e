"""Which fields are stored in int8: by hand, and within searches of a mixed budget."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from fieldwise.core.budget import Budget
from fieldwise.core.errors import BudgetError
from fieldwise.core.mask import Mask
from fieldwise.core.schema import Layout, Schema
from fieldwise.core.store import Store
from fieldwise.data.store import Dataset
from fieldwise.models.autoint import AutoInt
from fieldwise.models.compact import compact
from fieldwise.models.deepfm import DeepFM
from fieldwise.models.fm import FM
from fieldwise.models.stored import StoredModel, stored, stored_bytes
from fieldwise.searches import SEARCHES
from fieldwise.searches.elimination import Elimination
from fieldwise.searches.elimination_order import Floats, Order
from fieldwise.searches.precision import fields_in_int8, relative_errors, worth_int8
from fieldwise.searches.race import Race
from fieldwise.searches.search import search
from fieldwise.searches.uniform import Uniform
from fieldwise.tables.embedding import FieldEmbedding
from fieldwise.train.pretraining import Pretrain, pretrain
from fieldwise.train.retraining import Retrain, retrain, stored_for
from fieldwise.train.task import Task
from tests.models.factories import deep
from tests.searches.small_searches import small

OWNERS = np.array([0, 0, 1, 1, 2])
"""Fields of two, two and one columns, which cost 10, 10 and 1 each, 41 together."""


def ordered(prices: Floats) -> Order:
    """Columns that went in the order of their prices."""
    order = Order.of(np.array([10, 10, 10, 10, 1]), [np.arange(5)], OWNERS, 0.01, 1.0)
    order.prices, order.ranks = prices, np.argsort(np.argsort(prices)).astype(float)
    return order


@pytest.mark.parametrize(
    ("room", "chosen"),
    [
        (82, [2, 0, 1]),  # all fits in int8
        (41, [2]),  # field 0 saves 0.15 per cost, but two columns of price 0.1 and 0.2 would have to go
        (42, [2]),
        (52, [2, 0]),  # only one has to go, of price 0.1
        (51, [2]),
        (21, [2]),
        (2, []),  # the last but one column, of price 0.9, would have to go
    ],
)
def test_a_field_is_in_int8_while_it_saves_more_than_the_columns_that_go(room: int, chosen: list[int]) -> None:
    saved = np.array([1.0, 2.0, 0.3, 0.3, 0.8])  # per cost 0.15, 0.03 and 0.8
    order = ordered(np.array([0.3, 0.9, 0.1, 0.2, 5.0]))
    assert worth_int8(saved, 2 * order.costs, OWNERS, order, room) == chosen


def test_what_saves_nothing_stays_in_int4() -> None:
    order = ordered(np.arange(5.0))
    assert worth_int8(np.zeros(5), 2 * order.costs, OWNERS, order, 100) == []


@pytest.mark.parametrize(("room", "chosen"), [(81, [1, 2, 0]), (80, [1, 2]), (59, [1]), (58, [2])])
def test_what_int8_costs_is_counted_exactly(room: int, chosen: list[int]) -> None:
    """Scales take the same bytes in int8, so that it costs less than twice as much."""
    saved = np.array([0.1, 0.1, 0.5, 0.5, 0.05])
    order = ordered(np.array([0.3, 0.9, 0.1, 0.2, 5.0]))
    assert worth_int8(saved, np.array([20, 20, 19, 19, 3]), OWNERS, order, room) == chosen


@pytest.mark.parametrize("room", [29, 45, 200])
def test_int8_that_costs_nothing_is_chosen(room: int) -> None:
    """A field of one id takes a byte per column in int4 too; it saves nothing if it has no column."""
    order = ordered(np.array([0.3, 0.9, 0.1, 0.2, 5.0]))
    costs = np.array([20, 20, 10, 10, 1])
    assert worth_int8(np.array([0.0, 0.0, 1e-9, 0.0, 0.0]), costs, OWNERS, order, room) == [1]


@pytest.mark.parametrize(("more", "chosen"), [(0, ()), (1, ()), (2, ("b",)), (3, ("b",)), (4, ("b", "a"))])
def test_fields_whose_int8_fits_are_chosen_by_exact_bytes(more: int, chosen: tuple[str, ...]) -> None:
    """A column of three ids takes 6 bytes in int4, with its scale, and 7 in int8; so does a first-order weight."""
    model = FM(width=1).new(Schema.of(a=3, b=3))
    costs = Budget.bytes(99, "mixed").costs(model.layout, model.linear)
    assert costs.tolist() == [6, 6, 6, 6]
    order = Order.of(costs, [np.arange(4)], np.array([0, 1, -1, -1]), 0.01, 1.0)
    order.prices, order.ranks = np.full(4, 1e9), np.arange(4.0)  # no column may go
    budget = Budget.bytes(24 + more, "mixed")
    assert fields_in_int8(model, budget, order, np.array([1.0, 9.0, 1.0, 9.0])) == chosen


def test_errors_are_relative_to_the_numbers_of_a_column() -> None:
    tables = FieldEmbedding(Layout(Schema.of(a=9, b=40, c=3), (1, 2, 0)), 1.0)
    with torch.no_grad():
        tables.table(0).copy_(torch.arange(9.0)[:, None] - 4)  # integers, with scale 4/7
        tables.table(1)[:, 0] = 7 * torch.randint(-1, 2, (40,))  # exact in int4
        tables.table(1)[:, 1] *= 1e-3
    one, exact, scaled = relative_errors(tables, 7)
    assert exact == 0
    assert 0 < one < 0.02
    with torch.no_grad():
        tables.table(1)[:, 1] *= 1e3
    assert relative_errors(tables, 7)[2] == pytest.approx(scaled, rel=1e-4)
    assert relative_errors(tables, 127)[2] < scaled / 100


@pytest.fixture(scope="module")
def start(planted: Dataset) -> Task:
    task = Task.of(planted, DeepFM(width=4), seed=3, device="cpu")
    return task.starting_from(pretrain(task, Pretrain(batch=512, epochs=2, learning_rate=0.02)).model)


@pytest.mark.parametrize(("text", "factor"), [("12% bytes mixed", 10), ("6% bytes mixed", 300), ("3 KB mixed", 10)])
def test_elimination_spends_a_mixed_budget_on_columns_and_bits(
    start: Task, text: str, factor: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DeepFM, "int8_factor", factor)  # this model hardly learned anything
    budget = Budget.parse(text)
    found = search(start, Elimination(), budget)
    assert found.mask.int8 is not None
    assert 0 < sum(found.mask.int8) < len(start.schema)
    linear = start.linear
    counted, kept = budget.of(found.mask), found.mask.over(linear)
    limit, costs = counted.limit(start.layout, linear), counted.costs(start.layout, linear)
    spent = int(costs[kept].sum())
    assert spent <= limit
    assert costs[~kept].min() > limit - spent
    assert found.store == Store("int4", int8=found.mask.in_int8)
    assert stored_bytes(stored(found.model, found.store)).per_id <= spent
    assert Mask.from_json(found.mask.to_json()) == found.mask
    assert f"in int8: {', '.join(found.mask.in_int8)}" in repr(found)
    assert search(start, Elimination(), budget).mask == found.mask


def test_a_mixed_model_is_retrained_as_it_will_be_stored(start: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DeepFM, "int8_factor", 300.0)
    budget = Budget.parse("12% bytes mixed")
    found = search(start, Elimination(), budget)
    settings = stored_for(Retrain(batch=256, epochs=2), budget, found.mask)
    trained = retrain(start, found.model, settings)
    assert isinstance(trained.model, StoredModel)
    assert trained.model.store == found.store
    assert found.store.int8


def test_autoint_stores_more_fields_in_int8(planted: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    """What int8 saves counts more there than for other models."""
    task = Task.of(planted, AutoInt(width=4, layers=1), seed=3, device="cpu")
    task = task.starting_from(pretrain(task, Pretrain(batch=256, epochs=4, learning_rate=0.02)).model)
    budget = Budget.parse("9% bytes mixed")
    more = search(task, Elimination(), budget).mask.in_int8
    monkeypatch.setattr(AutoInt, "int8_factor", DeepFM.int8_factor)
    fewer = search(task, Elimination(), budget).mask.in_int8
    assert set(fewer) < set(more)


def test_all_columns_in_int8_if_there_is_room(start: Task) -> None:
    budget = Budget.parse("5200 bytes mixed")  # more than the int4 size, nearly the int8 size
    layout, linear = start.layout, start.linear
    assert budget.costs(layout, linear).sum() < 3200
    most = replace(budget, int8=start.schema.names).costs(layout, linear).sum()
    found = search(start, Elimination(), budget)
    assert found.mask.columns == layout.columns
    assert len(found.mask.in_int8) >= 4
    with pytest.raises(BudgetError, match=f"above the full size of {most} bytes in mixed"):
        search(start, Elimination(), f"{most + 1} bytes mixed")
    assert len(search(start, Elimination(), f"{most} bytes mixed").mask.in_int8) == len(start.schema)
    assert search(start, Uniform(), budget).mask.columns == layout.columns, "a bound is no more than that"


def test_a_field_left_out_leaves_room_for_int8(start: Task) -> None:
    """Its bytes are spent on bits, and no column goes as long as all fit in int8."""
    full = start.starting_model()
    gone = start.schema.names.index("user")
    kept = tuple(() if j == gone else tuple(range(w)) for j, w in enumerate(full.layout.widths))
    first = tuple(int(j != gone) for j in range(len(kept)))
    task = replace(start, start=compact(full, Mask(full.layout, kept, first)))
    assert task.left_out == {gone}
    budget = Budget.parse("12.4% bytes mixed")
    assert budget.limit(full.layout, full.linear) > 1.3 * budget.costs(task.layout, task.linear).sum()
    found = search(task, Elimination(), budget)
    assert found.mask.columns == task.layout.columns
    assert sum(found.mask.int8 or ()) >= 2


def test_bits_never_leave_room_for_no_column(start: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DeepFM, "int8_factor", 1e9)
    least = Budget.bytes(9999, "mixed").costs(start.layout).min()
    found = search(start, Elimination(), f"{least} bytes mixed")
    assert found.mask.columns == 1
    assert found.store == Store("int4")


def test_a_race_of_a_mixed_budget_is_in_int4(start: Task) -> None:
    race = Race(entrants={"elimination": {}, "uniform": {}}, retrain=Retrain(batch=256, epochs=1))
    assert search(start, race, "11% bytes mixed").store == Store("int4")


@pytest.mark.parametrize("name", [name for name in SEARCHES if name != "elimination"])
def test_other_searches_store_a_mixed_budget_in_int4(name: str, start: Task) -> None:
    found = search(start, small(name), Budget.parse("11% bytes mixed"))
    assert found.mask.int8 is None
    assert found.store == Store("int4")
    same = search(start, small(name), Budget.parse("11% bytes int4"))
    assert found.mask == same.mask


def test_a_factorys_model_has_no_bits_to_choose(planted: Dataset) -> None:
    task = Task.of(planted, deep, seed=0, device="cpu")
    task = task.starting_from(pretrain(task, Pretrain(batch=512, epochs=1)).model)
    found = search(task, Elimination(), "6% bytes mixed")
    assert found.mask.int8 is None
    assert found.mask == search(task, Elimination(), "6% bytes int4").mask
