"""Budgets in bytes: every search counts tables, first-order weights and scales, and may drop first-order weights."""

import numpy as np
import pytest
import torch

from fieldwise.core.budget import Budget
from fieldwise.core.errors import BudgetError
from fieldwise.core.mask import Mask
from fieldwise.core.schema import Layout, Schema
from fieldwise.core.store import Store
from fieldwise.data.store import Dataset
from fieldwise.models.compact import compact, widened
from fieldwise.models.deepfm import DeepFM
from fieldwise.models.model import HeadModel, Model
from fieldwise.models.stored import stored, stored_bytes
from fieldwise.searches import HAM, SEARCHES
from fieldwise.searches.magnitude import Magnitude
from fieldwise.searches.rounds import Rounds, loss_increase
from fieldwise.searches.search import finish, search
from fieldwise.searches.total import tables_budget
from fieldwise.searches.uniform import Uniform
from fieldwise.tables.row_factored import row_factored
from fieldwise.train.evaluate import evaluate
from fieldwise.train.pretraining import Pretrain, pretrain
from fieldwise.train.task import Task
from tests.searches.small_searches import TRAINED, small

KEEPS_ALL = ("autodim", "mde", "optembed", "pep", "uniform", "race")
"""Searches that keep all first-order weights while there is room; the race's entrants are uniform and magnitude."""


@pytest.fixture(scope="module")
def start_fm(planted: Dataset) -> Task:
    task = Task.of(planted, DeepFM(width=4), seed=3, device="cpu")
    return task.starting_from(pretrain(task, Pretrain(batch=512, epochs=2, learning_rate=0.02)).model)


@pytest.mark.parametrize("name", SEARCHES)
def test_every_search_counts_what_is_stored_per_id(name: str, start_fm: Task) -> None:
    budget = Budget.parse("15% bytes int8")
    found = search(start_fm, small(name), budget)
    linear = start_fm.linear
    limit, costs = budget.limit(start_fm.layout, linear), budget.costs(start_fm.layout, linear)
    kept = found.mask.over(linear)
    assert found.mask.first_order is not None
    spent = int(costs[kept].sum())
    assert spent <= limit
    assert costs[~kept].min() > limit - spent
    assert found.model.linear == found.mask.linear
    assert stored_bytes(stored(found.model, Store("int8"))).per_id == spent
    if name in KEEPS_ALL and name != "race":
        assert found.mask.first_order == (1,) * len(start_fm.schema)
    if name not in TRAINED:  # those: test_start.py
        assert found.summary.selected_auc == evaluate(found.model, start_fm.valid).auc


def test_a_search_may_drop_first_order_weights_only(start_fm: Task) -> None:
    model = start_fm.starting_model()
    mask = Mask(model.layout, Mask.all(model.layout).kept, (0, *(1 for _ in start_fm.schema.names[1:])))
    found = finish(start_fm, Budget.percent(99, "bytes"), mask, model)
    assert found.model.layout == model.layout
    assert found.model.linear == mask.linear


def test_first_order_weights_compete_with_columns(start_fm: Task) -> None:
    found = search(start_fm, HAM(epochs=2, batch=256), Budget.parse("4% bytes int4"))
    assert found.mask.first_order is not None
    assert 0 in found.mask.first_order
    assert found.mask.columns >= 1
    lost = [name for name, width, first in zip(
        start_fm.schema.names, found.mask.widths, found.mask.first_order, strict=True
    ) if not width and not first]  # fmt: skip
    assert not set(lost) & set(found.model.needs)


def test_a_gate_over_first_order_weights_is_the_compact_model(start_fm: Task) -> None:
    model = start_fm.starting_model().eval()
    linear = model.linear
    assert linear is not None
    gate = torch.ones(model.layout.columns + linear.columns)
    gate[-1] = 0
    gate[3] = 0
    ids = next(start_fm.valid.ordered(100)).ids
    narrow = compact(model, Mask.of(model.layout, gate.numpy(), linear))
    assert narrow.linear == Layout(linear.schema, (*linear.widths[:-1], 0))
    torch.testing.assert_close(narrow(ids), model(ids, gate), atol=1e-5, rtol=1e-5)
    fast = row_factored(model)
    assert fast is not model
    torch.testing.assert_close(fast(ids, gate), model(ids, gate), atol=1e-5, rtol=1e-5)
    slopes = []
    for forward in (fast, model):
        values = gate.clone().requires_grad_()
        slopes.append(torch.autograd.grad(forward(ids, values).sum(), values)[0])
    torch.testing.assert_close(*slopes, atol=1e-4, rtol=1e-4)


def test_the_loss_increase_of_first_order_weights(start_fm: Task) -> None:
    model = start_fm.starting_model().eval()
    count = model.layout.columns + len(start_fm.schema)
    rises = loss_increase(model, start_fm.valid, count)
    assert rises.shape == (count,)
    assert np.allclose(rises[: model.layout.columns], loss_increase(model, start_fm.valid), atol=1e-9)
    gate = torch.ones(count)
    gate[model.layout.columns + int(rises[model.layout.columns :].argmax())] = 0
    assert evaluate(model, start_fm.valid, gate).log_loss > evaluate(model, start_fm.valid).log_loss


@pytest.mark.parametrize("settings", [HAM(epochs=2, batch=256), Rounds(rounds=3, batch=256), Uniform(), Magnitude()])
def test_a_total_counts_the_dense_layers_of_the_compact_model(settings: object, start_fm: Task) -> None:
    full = stored_bytes(stored(start_fm.starting_model(), Store("int8")))
    amount = (full.per_id + full.dense) // 2
    found = search(start_fm, settings, Budget.bytes(amount, "int8", total=True))  # type: ignore[arg-type]
    sizes = stored_bytes(stored(found.model, Store("int8")))
    assert str(found.budget) == f"{amount} bytes int8 total"
    assert sizes.per_id + sizes.dense <= amount
    assert sizes.dense < full.dense
    fits = tables_budget(start_fm.model, start_fm.schema, found.budget).fits
    kept = found.mask.over(start_fm.linear)
    assert fits is not None
    for place in np.flatnonzero(~kept):
        more = kept | (np.arange(len(kept)) == place)
        assert not fits(Mask.of(start_fm.layout, more, start_fm.linear)), "one more column would fit"


def test_columns_return_with_the_weights_that_they_had(settings: Model, schema: Schema) -> None:
    start = settings.new(schema)
    assert isinstance(start, HeadModel)
    draw = np.random.default_rng(0)
    first = (1, 0, 1, 0) if start.linear else None
    kept = tuple(tuple(k for k in range(w) if draw.random() < 0.5) for w in start.layout.widths)
    mask = Mask(start.layout, ((), *kept[1:]), first)
    wider = Mask(start.layout, ((0,), *(tuple(sorted({*own, w - 1})) for own, w in zip(
        kept[1:], start.layout.widths[1:], strict=True
    ))), first and (1, 1, 1, 0))  # fmt: skip
    small = compact(start, mask)
    with torch.no_grad():
        for weight in small.parameters():
            weight.add_(1)
    large = widened(small, start, mask, wider)
    places = tuple(tuple(map(columns.index, own)) for columns, own in zip(wider.kept, mask.kept, strict=True))
    again = compact(large, Mask(wider.layout, places, first))
    for name, weight in again.state_dict().items():
        assert torch.equal(weight, small.state_dict()[name]), name
    assert torch.equal(large.embedding.table(0), start.embedding.table(0)[:, [0]])
    if large.first_order and start.first_order:
        assert torch.equal(large.first_order.table(1), start.first_order.table(1))


def test_totals_that_cannot_be_met(start_fm: Task) -> None:
    with pytest.raises(BudgetError, match=r"cannot be met. Allowed: [0-9]+ to [0-9]+ bytes, dense layers included"):
        search(start_fm, Uniform(), Budget.parse("900 bytes total"))
    with pytest.raises(BudgetError, match="cannot be met"):
        search(start_fm, Uniform(), Budget.parse("90 MB total"))
    with pytest.raises(BudgetError, match="Leave 'total' out"):
        search(start_fm, small("optembed"), Budget.parse("50% bytes total"))
