"""Searches without training, against slow references and cases by hand."""

import math

import numpy as np
import pytest
import torch
from torch.nn import functional

from fieldwise.core.budget import Budget
from fieldwise.core.errors import BudgetError
from fieldwise.core.schema import Layout, Schema
from fieldwise.core.select import select
from fieldwise.searches.magnitude import Magnitude
from fieldwise.searches.mde import MDE
from fieldwise.searches.search import search
from fieldwise.searches.sseds import SSEDS
from fieldwise.train.task import Task


def widths_by_formula(layout: Layout, scale: float, mde: MDE) -> list[int]:
    """lambda * C ** -T, rounded, at least 1, at most the field's full width."""
    found = []
    for cardinality, most in zip(layout.schema.cardinalities, layout.widths, strict=True):
        exact = scale * cardinality**-mde.temperature
        rounded = math.floor(exact + 0.5) if mde.rounding == "nearest" else 2 ** math.floor(math.log2(exact) + 0.5)
        found.append(min(most, max(1, int(rounded))))
    return found


@pytest.mark.parametrize("rounding", ["nearest", "power-of-two"])
@pytest.mark.parametrize("scale", [1.5, 7.0, 23.0, 60.0])
def test_mde_is_the_closed_form_at_the_lambda_that_the_budget_allows(rounding: str, scale: float) -> None:
    layout = Schema.of(user=6041, movie=3634, gender=3, age=8, zip=3440).layout(16)
    mde = MDE(rounding=rounding)
    expected = widths_by_formula(layout, scale, mde)
    for budget in (Budget.columns(sum(expected)), Budget.parameters(Layout(layout.schema, tuple(expected)).params)):
        assert list(select(mde.scores(layout), layout, budget).widths) == expected


def test_mde_gives_no_field_more_columns_than_ids_and_no_field_none(start: Task) -> None:
    result = search(start, MDE(), Budget.columns(20))
    assert all(1 <= w <= c for w, c in zip(result.mask.widths, start.schema.cardinalities, strict=True))
    assert result.mask.kept == tuple(tuple(range(width)) for width in result.mask.widths)


def test_a_budget_that_mde_cannot_meet_names_the_smallest_it_can(start: Task) -> None:
    with pytest.raises(BudgetError, match=r"too small for mde.*The smallest it can meet: 6 columns"):
        search(start, MDE(), Budget.columns(5))
    smallest = sum(start.schema.cardinalities)
    with pytest.raises(BudgetError, match=f"The smallest it can meet: {smallest} parameters"):
        search(start, MDE(), Budget.parameters(smallest - 1))
    assert search(start, MDE(), Budget.parameters(smallest)).mask.widths == (1,) * 6


def test_a_restarting_search_begins_from_fresh_or_from_pretrained_weights(start: Task) -> None:
    fresh, again = (search(start, MDE(), Budget.columns(9)).model for _ in range(2))
    assert torch.equal(fresh.embedding.table(0), again.embedding.table(0))
    pretrained = search(start, MDE(start="pretrained"), Budget.columns(9))
    assert start.start is not None
    kept = list(pretrained.mask.kept[0])
    assert torch.equal(pretrained.model.embedding.table(0), start.start.embedding.table(0)[:, kept])
    assert not torch.equal(pretrained.model.embedding.table(0), fresh.embedding.table(0))
    assert not MDE().uses_pretrained
    assert MDE(start="pretrained").uses_pretrained


@pytest.mark.parametrize("form", ["raw", "rms"])
def test_magnitude_keeps_the_longest_columns(form: str, start: Task) -> None:
    assert start.start is not None
    scores = []
    for j, width in enumerate(start.layout.widths):
        table = start.start.embedding.table(j).detach().numpy().astype(np.float64)
        for k in range(width):
            total = sum(x * x for x in table[:, k])
            scores.append(math.sqrt(total if form == "raw" else total / len(table)))
    best = sorted(np.argsort(scores)[-7:])
    assert search(start, Magnitude(form=form), Budget.columns(7)).mask.indices.tolist() == best


def test_raw_magnitude_favors_large_fields_where_rms_does_not(start: Task) -> None:
    model = start.starting_model()
    with torch.no_grad():
        for j in range(6):
            model.embedding.table(j).fill_(1.0)
        model.embedding.table(5).fill_(1.5)  # the smallest field has the largest weights
    task = start.starting_from(model)
    assert search(task, Magnitude(form="raw"), Budget.columns(4)).mask.widths == (4, 0, 0, 0, 0, 0)
    assert search(task, Magnitude(form="rms"), Budget.columns(4)).mask.widths == (0, 0, 0, 0, 0, 4)


def test_sseds_is_the_mean_absolute_gradient_of_the_mask(start: Task) -> None:
    model = start.starting_model()
    before = {key: t.clone() for key, t in model.state_dict().items()}
    found = SSEDS(batch=100).scores(model, start)
    ids, labels = torch.from_numpy(start.valid_rows.ids), torch.from_numpy(start.valid_rows.labels).float()
    model.eval()
    sums = torch.zeros(start.layout.columns, dtype=torch.float64)
    parts = list(zip(ids.split(100), labels.split(100), strict=True))
    for some, wanted in parts:
        mask = torch.ones(start.layout.columns, requires_grad=True)
        functional.binary_cross_entropy_with_logits(model(some, mask), wanted).backward()
        assert mask.grad is not None
        sums += mask.grad.abs()
    assert torch.allclose(found, sums / len(parts), rtol=1e-5)
    assert all(torch.equal(before[key], t) for key, t in model.state_dict().items())
    # one gradient by definition
    step, column = 1e-2, int(found.argmax())
    low, high = torch.ones(2, start.layout.columns)
    low[column], high[column] = 1 - step, 1 + step
    losses = [functional.binary_cross_entropy_with_logits(model(ids, mask), labels) for mask in (high, low)]
    whole = SSEDS(batch=len(ids)).scores(model, start)[column]
    assert abs(float((losses[0] - losses[1]).detach())) / (2 * step) == pytest.approx(float(whole), rel=1e-2)
