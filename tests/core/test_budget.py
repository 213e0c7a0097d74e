import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fieldwise.core.budget import Budget
from fieldwise.core.errors import BudgetError
from fieldwise.core.mask import Mask
from fieldwise.core.schema import Layout, Schema
from fieldwise.core.store import Store

LAYOUT = Schema.of(user=50, gender=2, item=30).layout(16)  # widths 16, 2, 16


@pytest.mark.parametrize(
    ("text", "budget"),
    [
        ("28", Budget.columns(28)),
        ("28 columns", Budget.columns(28)),
        (28, Budget.columns(28)),
        ("27k parameters", Budget.parameters(27_000)),
        ("1_000 params", Budget.parameters(1_000)),
        ("2.5k parameters", Budget.parameters(2_500)),
        ("512 KiB", Budget.bytes(512 * 1024)),
        ("1 MB float16", Budget.bytes(10**6, "float16")),
        ("900 bytes", Budget.bytes(900)),
        ("25%", Budget.percent(25, "parameters")),
        ("25% columns", Budget.percent(25, "columns")),
        ("0.5% bytes", Budget.percent(0.5, "bytes")),
        ("25% align 4", Budget(25, "parameters", share=True, align=4)),
        ("1 MB float16 align 8", Budget(10**6, "bytes", store="float16", align=8)),
        ("54 KB int8", Budget.bytes(54_000, "int8")),
        ("3% bytes int4", Budget(3, "bytes", share=True, store="int4")),
        ("64 KiB int8 total align 2", Budget(65536, "bytes", store="int8", total=True, align=2)),
        (Budget.columns(3), Budget.columns(3)),
    ],
)
def test_text_becomes_a_budget(text: str | int | Budget, budget: Budget) -> None:
    assert Budget.parse(text) == budget


@pytest.mark.parametrize(
    "text",
    [
        "0",
        "-3",
        "0 parameters",
        "101%",
        "0%",
        "",
        "many",
        "2.5",
        "28 rows",
        "nan",
        "1e400",
        "28 align 0",
        "28 align x",
        "28 columns int8",
        "5% int8",
        "28 total",
        "1 MB bfloat16",
        "1 MB int3",
        "54 KB int8 row",
    ],
)
def test_nonsense_is_refused(text: str) -> None:
    with pytest.raises(BudgetError, match="Budget"):
        Budget.parse(text)


@given(
    st.one_of(
        st.builds(Budget.columns, st.integers(1, 10**6)),
        st.builds(Budget.parameters, st.integers(1, 10**12)),
        st.builds(
            Budget.bytes, st.integers(1, 10**12), st.sampled_from(["float32", "float16", "int8", "int4"]), st.booleans()
        ),
        st.builds(Budget.percent, st.integers(1, 100), st.sampled_from(["columns", "parameters", "bytes"])),
        st.builds(lambda amount, align: Budget(amount, align=align), st.integers(1, 10**6), st.integers(1, 64)),
    )
)
def test_text_round_trips(budget: Budget) -> None:
    assert Budget.parse(str(budget)) == budget
    assert "/" not in budget.slug
    assert " " not in budget.slug


def test_costs_are_in_the_unit() -> None:
    assert Budget.columns(1).costs(LAYOUT).sum() == 34
    assert Budget.parameters(1).costs(LAYOUT).sum() == 50 * 16 + 2 * 2 + 30 * 16 == LAYOUT.params
    assert Budget.bytes(1, "float16").costs(LAYOUT).sum() == 2 * LAYOUT.params
    assert np.array_equal(Budget.parameters(1).costs(LAYOUT)[15:18], [50, 2, 2])


def test_limits() -> None:
    assert Budget.columns(34).limit(LAYOUT) == 34
    assert Budget.percent(50, "columns").limit(LAYOUT) == 17
    assert Budget.percent(100).limit(LAYOUT) == LAYOUT.params
    assert Budget.percent(25).fixed(LAYOUT) == Budget.parameters(LAYOUT.params // 4)
    assert Budget.columns(30).within(LAYOUT) == Budget.columns(30)
    assert Budget.columns(40).within(LAYOUT) == Budget.columns(34)
    assert Budget.parse("25% align 4").fixed(LAYOUT) == Budget(LAYOUT.params // 4, "parameters", align=4)
    assert Budget(3, align=4).aligned(LAYOUT, (5, 1, 0)) == (8, 2, 0)


@pytest.mark.parametrize(
    ("budget", "says"),
    [
        (Budget.columns(35), "above the full size of 34 columns"),
        (Budget.parameters(1), "the cheapest costs 2"),
        (Budget.bytes(10**9), "above the full size"),
        (Budget.percent(0.01), "holds no column"),
        (Budget(1, align=4), "holds no 4 columns of a field: the cheapest costs 2"),
    ],
)
def test_a_budget_that_cannot_be_met_says_what_can(budget: Budget, says: str) -> None:
    with pytest.raises(BudgetError, match=says):
        budget.limit(LAYOUT)


def test_unit_and_dtype_are_checked() -> None:
    with pytest.raises(BudgetError, match="Choose from: columns, parameters, bytes"):
        Budget(3, "rows")  # type: ignore[arg-type]
    with pytest.raises(BudgetError, match="float32"):
        Budget.bytes(3, "float12")  # type: ignore[arg-type]


LINEAR = Layout(LAYOUT.schema, (1, 0, 1))


def test_bytes_count_everything_stored_per_id() -> None:
    costs = Budget.bytes(1, "int4").costs(LAYOUT, LINEAR)
    assert len(costs) == 34 + 2
    assert np.array_equal(costs[[0, 16, 18, 34, 35]], [25 + 4, 1 + 4, 15 + 4, 25 + 4, 15 + 4])
    assert np.array_equal(Budget.bytes(1, "int8").costs(LAYOUT, LINEAR)[[0, 16, 34]], [54, 6, 54])
    assert np.array_equal(Budget.bytes(1, "float16").costs(LAYOUT, LINEAR)[[0, 16, 34]], [100, 4, 100])
    full = 4 * (LAYOUT.params + 80)
    assert Budget.percent(10, "bytes").limit(LAYOUT, LINEAR) == full // 10
    assert Budget.parse("10% bytes int8").limit(LAYOUT, LINEAR) == full // 10
    assert Budget.parse("10% bytes int8").limit(LAYOUT) == 4 * LAYOUT.params // 10


@pytest.mark.parametrize("budget", [Budget.columns(3), Budget.parameters(60), Budget.percent(10)])
def test_columns_and_parameters_do_not_count_first_order_weights(budget: Budget) -> None:
    assert budget.counted(LINEAR) is None
    assert np.array_equal(budget.costs(LAYOUT, LINEAR), budget.costs(LAYOUT))
    assert budget.limit(LAYOUT, LINEAR) == budget.limit(LAYOUT)


def test_a_model_that_fits_whole_is_refused_as_before() -> None:
    with pytest.raises(BudgetError, match="above the full size of"):
        Budget.parse("50% bytes int8").limit(LAYOUT, LINEAR)


@pytest.mark.parametrize(
    ("text", "store"),
    [
        ("100% bytes auto", "float32"),
        ("50% bytes auto", "float16"),
        ("25% bytes auto", "int8"),
        ("13% bytes auto", "int8"),
        ("12.5% bytes auto", "mixed"),
        ("500 bytes auto", "int8"),
        ("3 KB float16", "float16"),
    ],
)
def test_a_type_is_chosen_for_a_bound(text: str, store: str) -> None:
    layout = Schema.of(a=50, b=50).layout(8)  # 3,200 bytes in float32
    budget = Budget.parse(text)
    assert budget.typed(layout).store == store
    if budget.store == "auto":
        assert str(budget).endswith("auto")
        assert Budget.parse(str(budget)) == budget
        with pytest.raises(BudgetError, match="chooses the stored type"):
            budget.limit(layout)


def test_a_mixed_budget_counts_int8_where_a_search_chose_it() -> None:
    layout = Schema.of(a=50, b=31).layout(2)
    budget = Budget.parse("100 bytes mixed")
    assert str(budget) == "100 bytes mixed"
    assert Budget.parse(str(budget)) == budget == Budget.bytes(100, "mixed")
    assert budget.stored == Store("int4")
    assert budget.costs(layout).tolist() == [29, 29, 20, 20]
    chosen = budget.of(Mask(layout, ((0,), (0, 1)), None, (0, 1)))
    assert chosen.stored == Store("int4", int8=("b",))
    linear = Layout(layout.schema, (1, 1))
    assert chosen.costs(layout, linear).tolist() == [29, 29, 35, 35, 29, 35]
    assert chosen.full(layout) == 4 * 2 * 81  # a percentage is of float32


def test_mixed_types_with_dense_layers_are_refused() -> None:
    with pytest.raises(BudgetError, match="'mixed' does not count dense layers"):
        Budget.parse("100 KB mixed total")


def test_a_type_is_chosen_with_dense_layers_counted() -> None:
    layout = Schema.of(a=50, b=50).layout(8)
    assert Budget.parse("1000 bytes auto total").typed(layout, None, dense=4_800).store == "int4"
    assert Budget.parse("1000 bytes auto").typed(layout, None, dense=4_800).store == "float16"
