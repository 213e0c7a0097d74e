"""Every search from a full model that lacks a harmful field."""

import pytest

from fieldwise.core.budget import Budget
from fieldwise.core.mask import Mask
from fieldwise.models.compact import compact
from fieldwise.models.dcnv2 import DCNv2
from fieldwise.models.model import HeadModel
from fieldwise.searches import HAM, SEARCHES
from fieldwise.searches.search import search
from fieldwise.train.harmful import without
from fieldwise.train.task import Task
from tests.memorized import MODEL, SCHEMA, memorized_task
from tests.searches.small_searches import small

FULL, LINEAR = MODEL.layout(SCHEMA), MODEL.linear(SCHEMA)
TIME = 2


@pytest.fixture(scope="module")
def start() -> Task:
    """A task that starts without `time`, from weights that are not trained."""
    task = memorized_task()
    return task.starting_from(without(task.new_model(), ["time"]))


@pytest.mark.parametrize("name", SEARCHES)
@pytest.mark.parametrize("text", ["12%", "3% bytes int8", "7 columns"])
def test_a_budget_is_of_the_model_with_all_fields(name: str, text: str, start: Task) -> None:
    budget = Budget.parse(text)
    result = search(start, small(name), budget)
    assert result.mask.full == FULL, "the mask is over all fields"
    assert result.mask.widths[TIME] == 0
    assert result.model.needs == tuple(field for field in result.model.needs if field != "time")
    assert isinstance(result.model, HeadModel)
    assert result.model.linear is not None
    assert result.model.linear.widths[TIME] == 0
    limit, costs = budget.limit(FULL, LINEAR), budget.costs(FULL)
    spent = int(budget.costs(result.model.layout, result.model.linear).sum())
    assert spent <= limit
    dropped = costs[~result.mask.vector & (FULL.owners != TIME)]
    if name != "rounds" and budget.unit != "bytes":
        assert dropped.min() > limit - spent, "no other column fits"
    assert start.start is not None
    assert compact(start.start, result.mask).layout == result.model.layout, "it applies to the full model of the run"


@pytest.mark.parametrize("text", ["90%", "90% bytes", "15 columns", "90% bytes total"])
def test_a_budget_above_what_is_left_keeps_everything_else(text: str, start: Task) -> None:
    result = search(start, small("uniform"), text)
    assert result.mask.widths == start.layout.widths
    assert result.model.needs == ("tags", "user", "kind")


def test_stages_and_traces_are_of_the_model_with_all_fields(start: Task) -> None:
    result = search(start, HAM(epochs=1, batch=512, stages=("90%", "14 columns")), "7 columns")
    assert result.mask.columns == 7
    kept = Mask.all(start.layout).on(FULL)
    assert result.traces[0].columns.tolist() == kept.indices.tolist()


def test_a_model_without_first_order_weights(start: Task) -> None:
    task = memorized_task(DCNv2(width=4, hidden=(4,)))
    task = task.starting_from(without(task.new_model(), ["time", "kind"]))
    assert task.left_out == {2, 3}
    for name in ("mde", "uniform"):
        assert search(task, small(name), "8%").model.needs == ("tags", "user")


def test_a_narrow_start_has_nothing_left_out() -> None:
    task = memorized_task()
    narrow = compact(task.new_model(), Mask(FULL, ((0,), (0,), (), (0,))))
    assert task.starting_from(narrow).left_out == frozenset()
