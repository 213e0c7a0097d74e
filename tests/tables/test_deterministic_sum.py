"""Order-independent sums, and GPU code paths that also run on a CPU."""

import pytest
import torch

from fieldwise.core.schema import Schema
from fieldwise.models import layers
from fieldwise.tables import deterministic_sum, lookup


def given(scale: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Values of very different sizes, and row numbers with many repeats."""
    draw = torch.Generator().manual_seed(0)
    values = torch.randn(5_000, 3, generator=draw) * torch.logspace(-6, 0, 5_000)[:, None] * scale
    return values, (torch.rand(5_000, generator=draw) ** 4 * 50).int()


@pytest.mark.parametrize("scale", [1e-15, 1e-4, 1.0, 1e30])
def test_sums_are_those_of_doubles_rounded_once(scale: float) -> None:
    values, rows = given(scale)
    doubles = torch.zeros(60, 3, dtype=torch.float64).index_add_(0, rows, values.double())
    found = deterministic_sum.sums(values, rows, 60)
    assert found.dtype == torch.float32
    assert torch.allclose(found.double(), doubles, rtol=1e-7, atol=float(values.abs().max()) * 2**-40)
    assert not found[50:].any()


def test_no_order_changes_a_sum() -> None:
    values, rows = given(1.0)
    order = torch.randperm(5_000)
    floats = [torch.zeros(50, 3).index_add_(0, rows[o], values[o]) for o in (torch.arange(5_000), order)]
    assert not torch.equal(*floats)
    assert torch.equal(deterministic_sum.sums(values, rows, 50), deterministic_sum.sums(values[order], rows[order], 50))


@pytest.mark.parametrize("value", [1.0, -3.0, 1e-15, 1e30, 0.0])
def test_a_million_equal_values_in_one_row_fit(value: float) -> None:
    found = deterministic_sum.sums(torch.full((2**20, 1), value), torch.zeros(2**20, dtype=torch.int32), 1)
    assert torch.equal(found, torch.tensor([[value]]) * 2**20)


@pytest.mark.parametrize("wrong", [float("inf"), float("-inf"), float("nan")])
def test_what_is_not_finite_does_not_become_so(wrong: float) -> None:
    values, rows = given(1.0)
    values[7, 1] = wrong
    assert not deterministic_sum.sums(values, rows, 50).isfinite().any()


def test_rows_taken_number_by_number_have_the_gradients_of_plain_indexing() -> None:
    weights, numbers = torch.randn(9, 4, requires_grad=True), torch.randint(9, (5, 3), dtype=torch.int32)
    taken: torch.Tensor = lookup._Take.apply(weights, numbers)  # type: ignore[no-untyped-call]
    plain = weights[numbers.long()]
    assert torch.equal(taken, plain)
    coming = torch.randn(5, 3, 4)
    (mine,), (theirs,) = (torch.autograd.grad(out, weights, coming) for out in (taken, plain))
    assert torch.allclose(mine, theirs, atol=1e-6)


@pytest.mark.parametrize("rows", [64, 48, 7])
def test_a_lift_in_chunks_is_the_lift(rows: int) -> None:
    layout = Schema.of(a=8, b=9).layout(5)
    lift, v = layers.Lift(layout, 2), torch.randn(rows, 10, requires_grad=True)
    whole, parts = lift(v), layers._in_chunks(v.unflatten(1, (2, 5)), lift.weight.unflatten(0, (2, 5)))
    assert torch.allclose(whole, parts, atol=1e-6)
    coming = torch.randn_like(whole)
    for mine, theirs in zip(
        *(torch.autograd.grad(out, [v, lift.weight], coming) for out in (parts, whole)), strict=True
    ):
        assert torch.allclose(mine, theirs, atol=1e-5)
