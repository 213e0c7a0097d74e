import json
from dataclasses import replace
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fieldwise.core.budget import Budget, Unit
from fieldwise.core.errors import MaskError
from fieldwise.core.mask import Mask
from fieldwise.core.schema import Field, Layout, Schema
from fieldwise.core.select import select


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    fields = draw(st.lists(st.tuples(st.integers(1, 60), st.integers(0, 6)), min_size=1, max_size=6))
    schema = Schema.of(**{f"f{j}": c for j, (c, _) in enumerate(fields)})
    return Layout(schema, tuple(min(c, w) for c, w in fields))


@st.composite
def masks(draw: st.DrawFn) -> Mask:
    layout = draw(layouts())
    return Mask.of(layout, draw(st.lists(st.booleans(), min_size=layout.columns, max_size=layout.columns)))


@given(masks())
def test_mask_round_trips_through_its_vector_and_json(mask: Mask) -> None:
    assert Mask.of(mask.full, mask.vector) == mask
    assert Mask.from_json(json.loads(json.dumps(mask.to_json()))) == mask
    assert mask.columns == mask.vector.sum() == len(mask.indices)
    assert mask.params == (mask.full.rows * mask.vector).sum()
    assert np.array_equal(np.flatnonzero(mask.vector), mask.indices)


@given(masks(), st.randoms())
def test_a_mask_after_a_mask_is_one_mask(mask: Mask, random: "np.random.Generator") -> None:
    inner = Mask.of(mask.layout, [random.choice([0, 1]) for _ in range(mask.columns)])
    both = mask.then(inner)
    assert both.widths == inner.widths
    assert np.array_equal(both.indices, mask.indices[inner.indices])


@given(layouts(), st.data())
def test_select_is_within_the_budget_and_leaves_nothing_that_fits(layout: Layout, data: st.DataObject) -> None:
    if layout.columns == 0:
        return
    scores = data.draw(st.lists(st.floats(-5, 5), min_size=layout.columns, max_size=layout.columns))
    units: tuple[Unit, ...] = get_args(Unit)
    unit = data.draw(st.sampled_from(units))
    costs = Budget(1, unit).costs(layout)
    limit = data.draw(st.integers(int(costs.min()), int(costs.sum())))
    mask = select(scores, layout, Budget(limit, unit))
    spent = int(costs[mask.vector].sum())
    assert spent <= limit
    left = costs[~mask.vector]
    assert not len(left) or left.min() > limit - spent
    if unit == "columns":
        assert mask.columns == limit
        kept, lost = np.asarray(scores)[mask.vector], np.asarray(scores)[~mask.vector]
        assert not len(lost) or kept.min() >= lost.max()


def test_select_takes_the_best_that_still_fits() -> None:
    layout = Layout(Schema.of(big=10, small=2), (2, 2))
    assert select([3, 2, 1, 0], layout, Budget.columns(2)).kept == ((0, 1), ())
    assert select([3, 2, 1, 0], layout, Budget.parameters(14)).kept == ((0,), (0, 1))
    assert select([0, 0, 0, 0], layout, Budget.columns(3)).kept == ((0, 1), (0,))


@pytest.mark.parametrize("scores", [[3, 2, 1], [[3, 2, 1, 0]], 5, [[1, 2], [3]], ["high", "low", "low", "low"]])
def test_scores_of_the_wrong_shape_are_refused(scores: Any) -> None:
    layout = Schema.of(a=10, b=2).layout(2)
    with pytest.raises(MaskError, match=r"one number per column, shape \(4,\)\. Got .*\. Give the scores"):
        select(scores, layout, Budget.columns(2))


def test_aligned_selections_go_by_groups() -> None:
    layout = Layout(Schema.of(big=50, small=2, other=30), (6, 2, 5))
    scores = [9, 0, 8, 1, 7, 2, 3, 3, 6, 6, 6, 5, -9]
    assert select(scores, layout, Budget(4, align=2)).kept == ((0, 2), (), (0, 1))
    assert select(scores, layout, Budget(9, align=2)).kept == ((0, 2, 4, 5), (), (0, 1, 2, 3, 4)), "a whole field"
    assert select(scores, layout, Budget(13, align=4)).kept == ((0, 1, 2, 3, 4, 5), (0, 1), (0, 1, 2, 3, 4))
    assert select(scores, layout, Budget(5, align=4)).kept == ((0, 2, 4, 5), (), ()), "6.5 is a better mean than 5.75"


@given(layouts(), st.integers(1, 5), st.data())
def test_aligned_selections_are_multiples_or_whole_fields(layout: Layout, align: int, data: st.DataObject) -> None:
    if layout.columns == 0:
        return
    scores = data.draw(st.lists(st.floats(-5, 5), min_size=layout.columns, max_size=layout.columns))
    budget = Budget(data.draw(st.integers(min(align, 6) * 60, 6 * 6 * 60)), "parameters", align=align)
    budget = Budget(min(layout.params, int(budget.amount)), "parameters", align=align)
    mask = select(scores, layout, budget)
    assert mask.params <= budget.amount
    for width, full in zip(mask.widths, layout.widths, strict=True):
        assert width % align == 0 or width == full


def test_mask_json_is_readable(schema: Schema) -> None:
    mask = Mask(schema.layout(3), ((0, 2), (), (1,), (0,)))
    assert mask.to_json()["fields"][0] == {"name": "user", "cardinality": 50, "width": 3, "kept": [0, 2]}
    assert mask.widths == (2, 0, 1, 1)
    assert (mask.columns, mask.params) == (4, 2 * 50 + 30 + 7)


def test_what_is_no_mask_is_refused(schema: Schema) -> None:
    layout = schema.layout(3)
    for vector in ([0.5] * 11, [1] * 10, [[1] * 11]):
        with pytest.raises(MaskError):
            Mask.of(layout, vector)
    for kept in (((0, 3), (), (), ()), ((1, 0), (), (), ()), ((0,),)):
        with pytest.raises(MaskError):
            Mask(layout, kept)
    with pytest.raises(MaskError, match="format"):
        Mask.from_json({"format": "x"})
    with pytest.raises(MaskError, match="damaged"):
        Mask.from_json({**Mask.all(layout).to_json(), "fields": [{"name": "a", "cardinality": 3}]})
    with pytest.raises(MaskError, match="Cannot compose a mask of widths"):
        Mask.all(layout).then(Mask.all(schema.layout(2)))


def test_equal_scores_stay_aligned() -> None:
    """The mean of three times 0.1 rounds to more than the mean of four times 0.1."""
    layout = Layout(Schema.of(a=7, b=8), (7, 8))
    found = select([0.1] * 7 + [0.0] * 8, layout, Budget(4, "columns", align=4))
    assert found.widths == (4, 0)


def test_a_mask_over_fields_with_several_values_comes_back() -> None:
    schema = Schema((Field("user", 9), Field("genres", 5, length=3)))
    mask = Mask(schema.layout(4), ((0, 2), (3,)))
    assert Mask.from_json(mask.to_json()) == mask


MASK = "fieldwise-mask/1"
WRONG = (
    {"name": 3}, {"width": "3"}, {"width": -1}, {"width": 2**40}, {"kept": 3}, {"kept": ["0"]}, {"kept": [9]},
    {"kept": [0.5]}, {"cardinality": 0}, {"length": None},
)  # fmt: skip


@pytest.mark.parametrize(
    "value",
    [
        *([], 3, None, {}, {"format": MASK}, {"format": MASK, "fields": {}}, {"format": MASK, "fields": []}),
        *({"format": MASK, "fields": [{"name": "a", "cardinality": 5, "width": 3, "kept": [0], **w}]} for w in WRONG),
    ],
)
def test_json_that_is_no_mask_is_one_line(value: object) -> None:
    with pytest.raises(MaskError) as caught:
        Mask.from_json(value)
    assert "\n" not in str(caught.value)


FULL = Schema.of(user=50, gender=2, item=30).layout(4)
LINEAR = Layout(FULL.schema, (1, 0, 1))


def test_first_order_weights_are_columns_of_a_budget_in_bytes() -> None:
    scores = np.zeros(FULL.columns + 2)
    scores[FULL.columns :] = [1, 2]  # the first-order weights of the first and the last field
    costs = Budget.bytes(1, "int8").costs(FULL, LINEAR)
    room = int(costs[-1] + costs[0])
    mask = select(scores, FULL, Budget.bytes(room, "int8"), LINEAR)
    assert mask.first_order == (0, 0, 1)
    assert mask.columns >= 1
    assert np.array_equal(mask.over(LINEAR)[-2:], [False, True])
    assert int(Budget.bytes(1, "int8").costs(mask.layout, mask.linear).sum()) <= room
    assert Mask.of(FULL, mask.over(LINEAR), LINEAR) == mask
    assert Mask.from_json(mask.to_json()) == mask
    assert "first_order" not in Mask.all(FULL).to_json()["fields"][0]


def test_a_column_is_kept_however_good_first_order_weights_are() -> None:
    scores = np.concatenate([-np.ones(FULL.columns), [9, 9]])
    cheapest = int(Budget.bytes(1).costs(FULL).min())
    mask = select(scores, FULL, Budget.bytes(cheapest), LINEAR)
    assert (mask.columns, mask.first_order) == (1, (0, 0, 0))


def test_parameters_leave_first_order_weights_as_they_are() -> None:
    scores = np.arange(FULL.columns)
    assert select(scores, FULL, Budget.percent(50), LINEAR) == select(scores, FULL, Budget.percent(50))
    assert select(scores, FULL, Budget.percent(50), LINEAR).first_order is None


def test_masks_of_first_order_weights_compose() -> None:
    outer = Mask.of(FULL, np.ones(FULL.columns + 2), LINEAR)
    inner = Mask(outer.layout, outer.kept, (1, 0, 0))
    assert outer.then(inner).first_order == (1, 0, 0)
    assert outer.then(Mask.all(outer.layout)).first_order == (1, 0, 1)
    with pytest.raises(MaskError, match="Allowed: 0 or 1 for each field"):
        Mask(FULL, outer.kept, (1, 2, 0))


def test_a_further_condition_is_met_with_the_most_columns() -> None:
    scores = np.arange(FULL.columns)
    budget = replace(Budget.bytes(int(Budget.bytes(1).costs(FULL).sum())), fits=lambda mask: mask.columns <= 7)
    mask = select(scores, FULL, budget)
    assert mask == select(scores, FULL, Budget.bytes(int(Budget.bytes(1).costs(mask.layout).sum())))
    assert mask.columns == 7


def test_masks_say_which_fields_are_in_int8() -> None:
    full = Schema.of(a=9, b=4, c=5).layout(2)
    mask = Mask(full, ((0, 1), (), (1,)), (0, 0, 1)).storing(("a", "b", "c"))
    assert mask.int8 == (1, 0, 1)  # b keeps nothing
    assert mask.in_int8 == ("a", "c")
    assert Mask.from_json(json.loads(json.dumps(mask.to_json()))) == mask
    assert mask.on(full) == mask
    assert mask.then(Mask.of(mask.layout, [0, 1, 1])).int8 == (1, 0, 1)
    assert Mask.all(full).in_int8 == ()
    for wrong in ((1, 0), (2, 0, 0)):
        with pytest.raises(MaskError, match="Allowed: 0 or 1 for each field"):
            replace(mask, int8=wrong)


def test_a_selection_counts_fields_in_int8() -> None:
    layout = Schema.of(a=10, b=10).layout(3)  # a column takes 9 bytes in int4, 14 in int8
    scores = np.array([6.0, 4, 2, 5, 3, 1])
    budget = replace(Budget.bytes(37, "mixed"), int8=("a",))
    found = select(scores, layout, budget)
    assert found.kept == ((0, 1), (0,))
    assert found.int8 == (1, 0)
    assert select(scores, layout, Budget.bytes(37, "mixed")).kept == ((0, 1), (0, 1))
