"""The row-factored forward pass must equal the model's own."""

from pathlib import Path

import pytest
import torch

import fieldwise
from fieldwise.core.registry import resolve
from fieldwise.core.schema import Field, Layout, Schema
from fieldwise.models import MODELS
from fieldwise.models.compact import compact
from fieldwise.models.fm import FM
from fieldwise.models.model import OwnModel
from fieldwise.tables.lookup import Distinct, Found, Places
from fieldwise.tables.row_factored import is_row_factored, row_factored
from fieldwise.tables.summed import SummedHead
from tests.small_models import MASKS, SCHEMA, ids_of, trained


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("training", [True, False])
def test_by_rows_gives_the_model_s_logits_and_gradients(settings: OwnModel, name: str, training: bool) -> None:
    layout = SCHEMA.layout(settings.width)
    model = compact(trained(settings, layout), MASKS[name](layout)).train(training)
    ids, pull = ids_of(SCHEMA), torch.linspace(-1, 1, 64)
    found = []
    for forward in (model, row_factored(model)):
        model.zero_grad()
        torch.manual_seed(0)  # for dropout
        logits = forward(ids)
        (logits * pull).sum().backward()
        found.append([logits, *(weight.grad for weight in model.parameters())])
    for plain, ours in zip(*found, strict=True):
        torch.testing.assert_close(ours, plain, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("training", [True, False])
def test_by_rows_takes_a_gate_as_the_model_does(settings: OwnModel, training: bool) -> None:
    layout = SCHEMA.layout(settings.width)
    model = trained(settings, layout).train(training)
    gate = torch.linspace(-0.5, 1, layout.columns).relu()
    ids, pull = ids_of(SCHEMA), torch.linspace(-1, 1, 64)
    found = []
    for forward in (model, row_factored(model)):
        model.zero_grad()
        torch.manual_seed(0)  # for dropout
        logits = forward(ids, gate)
        (logits * pull).sum().backward()
        torch.manual_seed(0)
        values = gate.clone().requires_grad_()
        (of_gate,) = torch.autograd.grad((forward(ids, values) * pull).sum(), values)
        found.append([logits, of_gate, *(weight.grad for weight in model.parameters())])
    for plain, ours in zip(*found, strict=True):
        torch.testing.assert_close(ours, plain, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", MODELS)
def test_heads_that_begin_with_a_sum_go_by_rows_and_no_others(name: str) -> None:
    model = resolve("model", MODELS, name)().build(SCHEMA.layout(4))
    assert isinstance(model.head, SummedHead) == (name in ("fm", "deepfm"))
    assert (row_factored(model) is not model) == isinstance(model.head, SummedHead)


@pytest.mark.parametrize(
    ("batch", "layout", "by_rows"),
    [
        (2**12, Layout(Schema.of(a=9, b=9), (4, 4)), True),
        (2**11 - 1, Layout(Schema.of(a=9, b=9), (4, 4)), False),
        (2**12 - 1, Layout(Schema.of(a=9, b=9), (4, 3)), False),
        (2**12, Schema.of(**{"a:frequent": 9, "a:rare": 9}).layout(4), True),
        (2**12 - 1, Schema.of(**{"a:frequent": 9, "a:rare": 9}).layout(4), False),
    ],
)
def test_small_batches_of_many_widths_do_not_go_by_rows(batch: int, layout: Layout, by_rows: bool) -> None:
    model = FM().build(layout)
    assert (row_factored(model, batch) is not model) == by_rows


def test_fields_with_several_values_a_row_are_not_summed_row_by_row() -> None:
    schema = Schema((Field("user", 9), Field("genres", 5, length=3)))
    model = resolve("model", MODELS, "fm")().build(schema.layout(4))
    assert row_factored(model) is model, "the square of a mean is not the mean of squares"


def test_sums_in_bfloat16_stay_near(settings: OwnModel) -> None:
    model, ids = trained(settings, SCHEMA.layout(settings.width)), ids_of(SCHEMA)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        half = row_factored(model)(ids).float()
    with torch.no_grad():
        torch.testing.assert_close(half, model(ids), atol=0.2, rtol=0.05)


@pytest.mark.parametrize("below", [100, 100_000])
def test_distinct_rows_know_their_places(below: int) -> None:
    table = torch.randn(below, 3)
    rows = torch.tensor([[7, 2], [99, 7], [2, 2]], dtype=torch.int32)
    found = Distinct().of(Found(table, Places(rows)))
    assert found.rows is not None
    assert found.rows.tolist() == [2, 7, 99]
    assert torch.equal(found.weights, table[[2, 7, 99]])
    assert found.places.numbers.tolist() == [[1, 0], [2, 1], [0, 0]]
    assert found.places.by_row is not None
    assert found.places.by_row.order.tolist() == [1, 4, 5, 0, 3, 2]
    assert found.places.by_row.starts.tolist() == [0, 3, 5]
    assert Distinct().of(found) is found


def test_gradients_through_places_are_those_of_plain_indexing() -> None:
    rows = torch.tensor([[7, 2], [9, 7], [2, 2]], dtype=torch.int32)
    pull = torch.arange(18.0).view(3, 2, 3)
    grads = []
    for known in (True, False):
        table = torch.randn(10, 3, requires_grad=True)
        found = Found(table, Places(rows))
        ((Distinct().of(found) if known else found).at_places() * pull).sum().backward()
        grads.append(table.grad)
    torch.testing.assert_close(*grads, rtol=0, atol=0)


def test_fm_and_deepfm_are_row_factored(settings: OwnModel) -> None:
    model = settings.build(SCHEMA.layout(settings.width))
    assert is_row_factored(model) == (type(settings).__name__ in ("FM", "DeepFM"))


def test_no_protocol_is_checked_at_run_time() -> None:
    """From Python 3.12 on, isinstance with a protocol does not see submodules, which nn.Module finds by __getattr__."""
    source = Path(fieldwise.__file__).parent
    assert [path.name for path in source.rglob("*.py") if "runtime_checkable" in path.read_text()] == []
