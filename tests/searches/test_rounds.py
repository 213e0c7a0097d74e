"""Pruning in rounds, against slow references and cases by hand."""

import numpy as np
import pytest
import torch
from torch.nn import functional

from fieldwise.core.budget import Budget
from fieldwise.core.mask import Mask
from fieldwise.core.schema import Schema
from fieldwise.data.store import Split
from fieldwise.models.fm import FM
from fieldwise.searches.rounds import Rounds, increase_per_cost, loss_increase, targets
from fieldwise.searches.search import search
from fieldwise.train.evaluate import evaluate
from fieldwise.train.task import Task


def test_the_expected_rise_is_the_expansion_summed_row_by_row(start: Task) -> None:
    model = start.starting_model().eval()
    found = loss_increase(model, start.valid)
    ids, labels = torch.from_numpy(start.valid_rows.ids), torch.from_numpy(start.valid_rows.labels).float()
    total = torch.zeros(start.layout.columns, dtype=torch.float64)
    for row in range(len(labels)):
        mask = torch.ones(start.layout.columns, requires_grad=True)
        loss = functional.binary_cross_entropy_with_logits(model(ids[row : row + 1], mask), labels[row : row + 1])
        (g,) = torch.autograd.grad(loss, mask)
        total += (-g + g.square() / 2).double()
    assert found == pytest.approx((total / len(labels)).numpy(), rel=1e-4, abs=1e-7)


def test_it_foretells_what_the_loss_does_without_a_column(start: Task) -> None:
    model = start.starting_model()
    whole = evaluate(model, start.valid).log_loss
    exact = []
    for column in range(start.layout.columns):
        mask = torch.ones(start.layout.columns)
        mask[column] = 0
        exact.append(evaluate(model, start.valid, mask).log_loss - whole)
    assert np.corrcoef(loss_increase(model, start.valid), exact)[0, 1] > 0.9


def test_an_empty_column_is_worth_nothing(start: Task) -> None:
    model = start.starting_model()
    with torch.no_grad():
        model.embedding.table(0)[:, 2] = 0
    found = loss_increase(model, start.valid)
    assert found[2] == 0
    assert found[0] != 0


def test_the_cost_falls_by_the_same_factor_to_the_budget() -> None:
    full = Mask.all(Schema.of(user=1000, gender=2).layout(8))
    whole = 8000 + 4
    found = targets(Budget.parameters(500), full, 4)
    assert found == [round(whole * (500 / whole) ** (k / 4)) for k in (1, 2, 3)] + [500]
    assert targets(Budget.columns(5), full, 1) == [5]


def test_dear_columns_must_be_worth_more_and_harmful_ones_go_first() -> None:
    found = increase_per_cost(np.array([0.4, 0.3, 0.0, -0.1, -0.2]), np.array([4, 1, 1, 1, 9]))
    assert found.tolist() == [0.1, 0.3, 0.0, -0.1, -0.2]


def test_it_trains_between_rounds_and_not_with_one(start: Task) -> None:
    once = search(start, Rounds(rounds=1, batch=256), Budget.columns(7))
    thrice = search(start, Rounds(rounds=3, batch=256, epochs=2), Budget.columns(7))
    assert (once.summary.epochs, once.history) == (0, ())
    assert [epoch.epoch for epoch in thrice.history] == [0, 1, 2, 0, 1, 2]
    assert thrice.summary.epochs == 4
    assert thrice.summary.steps == 4 * -(-len(start.train_rows) // 256)
    kept = list(once.mask.kept[0])
    assert start.start is not None
    assert torch.equal(once.model.embedding.table(0), start.start.embedding.table(0)[:, kept])


@pytest.mark.parametrize("budget", ["25%", "75%", "95%", "80% columns align 4"])
def test_a_round_that_ends_below_the_next_one_s_target_is_no_error(budget: str) -> None:
    """One column of the large table costs more than a round removes."""
    draw = np.random.default_rng(0)
    schema = Schema.of(user=1000, item=40, gender=3)
    ids = np.stack([draw.integers(0, c, 600) for c in schema.cardinalities], 1).astype(np.int32)
    rows = Split(ids, (draw.random(600) < 0.3).astype(np.float32))
    task = Task(schema, rows, rows, FM(width=8), device="cpu")
    found = search(task.starting_from(task.new_model()), Rounds(batch=256), Budget.parse(budget))
    assert int(found.budget.costs(found.mask.layout).sum()) <= Budget.parse(budget).limit(task.layout)
