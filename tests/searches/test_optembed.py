"""OptEmbed: the step function, the row thresholds, and an evolution within its bounds."""

from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fieldwise.core.budget import Budget
from fieldwise.core.errors import BudgetError
from fieldwise.core.schema import Schema
from fieldwise.searches.evolution import Evolution, Room
from fieldwise.searches.optembed import OptEmbed, RowThresholds, prefix, step
from fieldwise.searches.search import search
from fieldwise.train.task import Task


def test_the_step_s_gradient_is_piecewise() -> None:
    x = torch.tensor([-1.5, -1.0, -0.7, -0.4, -0.1, 0.0, 0.1, 0.4, 0.41, 1.0, 1.01], requires_grad=True)
    y = step(x)
    assert y.tolist() == [0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1]
    y.backward(torch.full_like(x, 3.0))
    assert x.grad is not None
    expected = [0, 0.4, 0.4, 0.4, 1.6, 2.0, 1.6, 0.4, 0.4, 0.4, 0]
    assert x.grad.tolist() == pytest.approx([3 * slope for slope in expected])


def test_a_prefix_is_the_first_columns_of_each_field() -> None:
    layout = Schema.of(a=9, b=2, c=9).layout(3)
    assert prefix(layout, torch.tensor([1, 2, 3])).int().tolist() == [1, 0, 0, 1, 1, 1, 1, 1]
    assert prefix(layout, torch.tensor([[3, 1, 1], [2, 2, 0]])).int().tolist() == [
        [1, 1, 1, 1, 0, 1, 0, 0],
        [1, 1, 0, 1, 1, 0, 0, 0],
    ]


def test_rows_below_their_threshold_are_zero_and_counted(start: Task) -> None:
    model = start.starting_model()
    rows = RowThresholds(start.layout, torch.device("cpu"), 1e-4)
    norms = model.embedding.table(1).detach().abs().sum(1)
    with torch.no_grad():
        rows.t[1] = norms.median()
    applied = rows.applied(model)
    gone = norms < norms.median()
    assert (applied.embedding.table(1)[gone] == 0).all()
    assert torch.equal(applied.embedding.table(1)[~gone], model.embedding.table(1)[~gone])
    assert torch.equal(applied.embedding.table(0), model.embedding.table(0))
    expected = list(start.schema.cardinalities)
    expected[1] = int((~gone).sum())
    assert rows.kept(model) == expected


def test_thresholds_take_one_plain_step_at_each_backward(start: Task) -> None:
    model = start.starting_model()
    rows = RowThresholds(start.layout, torch.device("cpu"), 0.5)
    ids = torch.from_numpy(start.train_rows.ids[:64])
    total = rows.forward(model, ids).sum() + 2.0 * torch.exp(-rows.t).sum()
    (expected,) = torch.autograd.grad(total, rows.t, retain_graph=True)
    total.backward()
    assert torch.allclose(rows.t, -0.5 * expected)
    assert rows.steps == 1
    assert rows.t.grad is None


def test_pressure_raises_thresholds(start: Task) -> None:
    rows = RowThresholds(start.layout, torch.device("cpu"), 0.1)
    (2.0 * torch.exp(-rows.t).sum()).backward()
    assert torch.allclose(rows.t, torch.full((6,), 0.2))


ROOM = Room(widths=(16, 3, 8, 16), costs=(50, 2, 7, 30), limit=900)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.integers(89, 1_340))
def test_children_stay_within_widths_and_limit_and_leave_no_room(seed: int, limit: int) -> None:
    draw = np.random.default_rng(seed)
    room = Room(ROOM.widths, ROOM.costs, limit)
    evolution = Evolution(chance=0.5)
    left, right = room.random(draw), room.random(draw)
    for genes in (left, evolution.mutate(left, room, draw), evolution.cross(left, right, room, draw)):
        assert all(1 <= g <= w for g, w in zip(genes, room.widths, strict=True))
        assert room.spent(genes) <= limit
        free = [c for g, w, c in zip(genes, room.widths, room.costs, strict=True) if g < w]
        assert not free or min(free) > limit - room.spent(genes)


def test_a_crossover_takes_fields_from_both_parents_at_one_point() -> None:
    free = Room((9,) * 5, (1,) * 5, 45)
    loose = Room((9,) * 5, (10,) * 5, 20 * 5 + 9)  # both parents spend the whole limit, so nothing is repaired
    assert free.repair((9,) * 5, np.random.default_rng(0)) == (9,) * 5
    seen = set()
    for seed in range(60):
        child = Evolution().cross((1, 3, 1, 3, 2), (3, 1, 3, 1, 2), loose, np.random.default_rng(seed))
        seen.add(child)
        assert loose.spent(child) <= loose.limit
    exact = {(1, 3, 3, 1, 2), (1, 3, 1, 3, 2)}
    assert exact <= seen
    assert Evolution().cross((4,), (7,), Room((9,), (1,), 9), np.random.default_rng(0)) == (9,)


def test_evolution_returns_the_fittest_ever_judged_and_judges_each_once() -> None:
    judged: list[tuple[int, ...]] = []

    def fitness(genes: tuple[int, ...]) -> float:
        judged.append(genes)
        return -float(abs(genes[0] - 5) + abs(genes[3] - 11))

    best, value = Evolution(generations=20).best(fitness, ROOM, np.random.default_rng(1))
    assert len(judged) == len(set(judged))
    assert best in judged
    assert value == max(-float(abs(g[0] - 5) + abs(g[3] - 11)) for g in judged)
    first, _ = Evolution(generations=1).best(fitness, ROOM, np.random.default_rng(1))
    assert value >= -float(abs(first[0] - 5) + abs(first[3] - 11)), "generations never lose the best"
    everything = product(*(range(1, width + 1) for width in ROOM.widths))
    filled = [g for g in everything if ROOM.repair(g, np.random.default_rng(0)) == g]
    assert value == max(-float(abs(g[0] - 5) + abs(g[3] - 11)) for g in filled), "the best there is, by trying all"


def test_a_budget_below_one_column_a_field_names_the_smallest(start: Task) -> None:
    with pytest.raises(BudgetError, match=r"too small for optembed.*smallest it can meet: 6 columns"):
        search(start, OptEmbed(), Budget.columns(5))
