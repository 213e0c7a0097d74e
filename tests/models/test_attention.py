"""The attention layers for a CPU's training steps compute what torch's operations compute, gradients included."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import prune

from fieldwise.core.schema import Field, Layout, Schema
from fieldwise.models import attention as module
from fieldwise.models import autoint
from fieldwise.models.attention import FEWEST, attend, padding
from fieldwise.models.attention_few import WIDEST, attend_few
from fieldwise.models.autoint import Attention, AutoInt, AutoIntHead

SIZES = [(5, 17, 6, 4, 2), (1, 7, 16, 16, 2), (3, 2, 3, 6, 3), (4, 1, 1, 1, 1), (9, 20, 16, 16, 2), (0, 3, 2, 2, 1)]
"""Rows, fields, width before, width after, heads."""


@pytest.mark.parametrize(("numbers", "more"), [(1, 0), (1_000, 2), (2**18, 1)])
@pytest.mark.parametrize(("rows", "fields", "before", "after", "heads"), SIZES)
def test_it_is_the_plain_layer(
    rows: int,
    fields: int,
    before: int,
    after: int,
    heads: int,
    numbers: int,
    more: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_NUMBERS", numbers)  # of chunks of the batch
    torch.manual_seed(0)
    layer = Attention(before, after, heads).double()
    x = torch.randn(rows, fields, before, dtype=torch.float64, requires_grad=True)
    upstream = torch.randn(rows, fields, after, dtype=torch.float64)
    inputs = [x, *layer.parameters()]
    expected = torch.autograd.grad((out := layer(x)), inputs, upstream)
    padded = attend(functional.pad(x.transpose(1, 2), (0, more)), layer.maps(), fields)
    assert not padded[:, :, fields:].any()
    own = padded[:, :, :fields].transpose(1, 2)
    torch.testing.assert_close(own, out, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(torch.autograd.grad(own, inputs, upstream), expected, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize(("rows", "fields", "before", "after", "heads"), SIZES)
def test_between_few_fields_it_is_the_plain_layer(rows: int, fields: int, before: int, after: int, heads: int) -> None:
    torch.manual_seed(0)
    layer = Attention(before, after, heads).double()
    x = torch.randn(rows, fields, before, dtype=torch.float64, requires_grad=True)
    upstream = torch.randn(rows, fields, after, dtype=torch.float64)
    inputs = [x, *layer.parameters()]
    expected = torch.autograd.grad((out := layer(x)), inputs, upstream)
    own = attend_few(x.permute(2, 1, 0).contiguous(), layer.maps()).permute(2, 1, 0)
    torch.testing.assert_close(own, out, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(torch.autograd.grad(own, inputs, upstream), expected, rtol=1e-11, atol=1e-12)


def test_gradients_are_those_of_small_changes() -> None:
    torch.manual_seed(0)
    x = torch.randn(3, 4, 5, dtype=torch.float64, requires_grad=True)
    maps = torch.randn(2, 4, 1, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x, maps: attend(x, maps, 5), (x, maps))
    assert torch.autograd.gradcheck(lambda x, maps: attend(functional.pad(x, (0, 3)), maps, 5)[:, :, :5], (x, maps))
    x = torch.randn(4, 5, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(attend_few, (x, maps))


def test_gradients_can_be_differentiated_again() -> None:
    torch.manual_seed(0)
    x = torch.randn(3, 4, 5, dtype=torch.float64, requires_grad=True)
    maps = torch.randn(2, 4, 1, 4, dtype=torch.float64, requires_grad=True)
    padded = functional.pad(x.detach(), (0, 3)).requires_grad_()
    assert torch.autograd.gradgradcheck(lambda x, maps: attend(x, maps, 5), (x, maps))
    assert torch.autograd.gradgradcheck(lambda x, maps: attend(x, maps, 5)[:, :, :5], (padded, maps))
    x = torch.randn(4, 5, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(attend_few, (x, maps))
    assert torch.autograd.gradgradcheck(lambda x: attend_few(x, maps.detach()), (x,))
    assert torch.autograd.gradgradcheck(lambda maps: attend_few(x.detach(), maps), (maps,))


def test_padding_is_at_most_an_eighth() -> None:
    assert [padding(fields) for fields in (16, 17, 21, 22, 23, 24, 39, 44, 1)] == [0, 0, 0, 2, 1, 0, 1, 4, 0]


def hooked(head: AutoIntHead) -> None:
    head.attention[0].get_submodule("query").register_forward_hook(lambda *called: 2 * called[-1])


def pruned(head: AutoIntHead) -> None:
    prune.l1_unstructured(head.attention[0].get_submodule("key"), "weight", 0.5)


def adapted(head: AutoIntHead) -> None:
    class Adapter(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return 2 * super().forward(x)

    head.attention[0].register_module("value", Adapter(4, 6, bias=False))


def wrapped(head: AutoIntHead) -> None:
    head.attention[1] = nn.Sequential(head.attention[1])


def patched(head: AutoIntHead) -> None:
    head.out.forward = lambda x: x.sum(1, keepdim=True)  # type: ignore[assignment]


@pytest.mark.parametrize("fields", [7, FEWEST])
@pytest.mark.parametrize("change", [hooked, pruned, adapted, wrapped, patched])
def test_modules_that_were_changed_are_called(change: Callable[[AutoIntHead], None], fields: int) -> None:
    torch.manual_seed(0)
    schema = Schema(tuple(Field(f"f{j}", 9) for j in range(fields)))
    head = AutoInt(common=4, attention=6).head(Layout(schema, (1,) * fields))
    assert isinstance(head, AutoIntHead)
    v = torch.randn(5, fields)
    before = head(v)
    change(head)
    for _ in range(2):  # a pruned layer computes its weights before each call
        head(v).sum().backward()
    after = head(v)
    with torch.no_grad():
        assert torch.equal(after, head(v))
    assert change is wrapped or not torch.equal(before, after)


@pytest.mark.parametrize(
    ("hidden", "fields", "heads", "attention", "runs"),
    [
        ((), FEWEST + 3, 2, 6, "attend"),
        ((8,), FEWEST, 2, 6, "attend"),
        ((8,), 23, 2, 6, "attend"),
        ((), 7, 2, 2 * WIDEST, "attend_few"),
        ((8,), FEWEST - 1, 2, 6, "attend_few"),
        ((), 1, 1, WIDEST, "attend_few"),
        ((), 7, 2, 2 * WIDEST + 2, None),
    ],
)
def test_a_model_predicts_in_training_what_it_predicts_afterwards(
    hidden: tuple[int, ...],
    fields: int,
    heads: int,
    attention: int,
    runs: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = set[str]()

    def watch(name: str) -> None:
        plain = getattr(autoint, name)

        def watched(*args: object) -> Tensor:
            seen.add(name)
            found: Tensor = plain(*args)
            return found

        monkeypatch.setattr(autoint, name, watched)

    watch("attend")
    watch("attend_few")
    torch.manual_seed(0)
    schema = Schema(tuple(Field(f"f{j}", 9) for j in range(fields)))
    layout = Layout(schema, tuple((j + 1) % 4 for j in range(fields)))  # with fields of width 0
    head = AutoInt(common=4, attention=attention, heads=heads, hidden=hidden).head(layout).eval()
    v = torch.randn(7, layout.columns, requires_grad=True)
    trained = head(v)
    assert seen == ({runs} if runs else set())
    (grad, *grads) = torch.autograd.grad(trained.sum(), [v, *head.parameters()])
    seen.clear()
    with torch.no_grad():
        torch.testing.assert_close(trained, head(v), rtol=1e-5, atol=1e-6)
    with torch.autocast("cpu", torch.bfloat16):
        assert head(v).dtype == torch.bfloat16
    assert not seen, "evaluation and bfloat16 use torch's operations"
    assert [other.shape for other in grads] == [weights.shape for weights in head.parameters()]
    assert grad.shape == v.shape
    assert grad.abs().sum() > 0
