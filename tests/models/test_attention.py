"""The attention layer for a CPU's training steps computes what torch's operations compute, gradients included."""

import pytest
import torch

from fieldwise.core.schema import Field, Layout, Schema
from fieldwise.models import attention as module
from fieldwise.models.attention import FEWEST, attend
from fieldwise.models.autoint import Attention, AutoInt

SIZES = [(5, 17, 6, 4, 2), (3, 2, 3, 6, 3), (4, 1, 1, 1, 1), (9, 20, 16, 16, 2)]
"""Rows, fields, width before, width after, heads."""


@pytest.mark.parametrize("numbers", [1, 1_000, 2**18])
@pytest.mark.parametrize(("rows", "fields", "before", "after", "heads"), SIZES)
def test_it_is_the_plain_layer(
    rows: int, fields: int, before: int, after: int, heads: int, numbers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_NUMBERS", numbers)  # of chunks of the batch
    torch.manual_seed(0)
    layer = Attention(before, after, heads).double()
    x = torch.randn(rows, fields, before, dtype=torch.float64, requires_grad=True)
    upstream = torch.randn(rows, fields, after, dtype=torch.float64)
    inputs = [x, *layer.parameters()]
    expected = torch.autograd.grad((out := layer(x)), inputs, upstream)
    own = attend(x.transpose(1, 2).contiguous(), layer.maps(), heads).transpose(1, 2)
    torch.testing.assert_close(own, out, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(torch.autograd.grad(own, inputs, upstream), expected, rtol=1e-11, atol=1e-12)


def test_gradients_are_those_of_small_changes() -> None:
    torch.manual_seed(0)
    x = torch.randn(3, 4, 5, dtype=torch.float64, requires_grad=True)
    maps = torch.randn(8, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x, maps: attend(x, maps, 2), (x, maps))


@pytest.mark.parametrize("hidden", [(), (8,)])
def test_a_model_predicts_in_training_what_it_predicts_afterwards(hidden: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    schema = Schema(tuple(Field(f"f{j}", 9) for j in range(FEWEST + 3)))
    layout = Layout(schema, tuple(j % 4 for j in range(FEWEST + 3)))  # with fields of width 0
    head = AutoInt(common=4, attention=6, hidden=hidden).head(layout).eval()
    v = torch.randn(7, layout.columns, requires_grad=True)
    trained = head(v)
    with torch.no_grad():
        torch.testing.assert_close(trained, head(v), rtol=1e-5, atol=1e-6)
    (grad,) = torch.autograd.grad(trained.sum(), v)
    with torch.autocast("cpu", torch.bfloat16):
        assert head(v).dtype == torch.bfloat16
    assert grad.shape == v.shape
    assert grad.abs().sum() > 0
