"""AutoDim: mixing by hand, candidates within the fields, and the budget."""

import numpy as np
import pytest
import torch

from fieldwise.core.budget import Budget
from fieldwise.core.errors import BudgetError
from fieldwise.core.schema import Schema
from fieldwise.models.dcnv2 import DCNv2
from fieldwise.searches.autodim import AutoDim, Mixture, Supernet, candidate_widths, grow
from fieldwise.searches.search import search
from fieldwise.train.task import Task


def test_candidates_never_exceed_what_a_field_can_have() -> None:
    layout = Schema.of(user=50, gender=3, flag=1, city=7).layout(16)
    assert candidate_widths(layout, (2, 4, 8)).tolist() == [[2, 4, 8], [2, 0, 0], [1, 0, 0], [2, 4, 0]]


def test_mixing_by_hand() -> None:
    layout = Schema.of(a=9, b=3).layout(16)
    widths = candidate_widths(layout, (2, 4))
    net = Supernet(DCNv2(width=16), layout, widths, 4)
    v = torch.randn(5, 8)
    chances = torch.tensor([[0.3, 0.7], [1.0, 0.0]])
    got = net.mix(v, chances)  # training mode: batch statistics
    for field, columns in ((0, [2, 4]), (1, [2])):
        total = torch.zeros(5, 4)
        for n, width in enumerate(columns):
            part = v[:, 4 * field : 4 * field + width] @ net.maps[field, n, :width].detach()
            normed = (part - part.mean(0)) / (part.var(0, unbiased=False) + 1e-5).sqrt()
            total += chances[field, n] * normed
        assert torch.allclose(got[:, 4 * field : 4 * field + 4], total, atol=1e-5)


def mixture(task: Task, settings: AutoDim) -> tuple[Supernet, Mixture]:
    widths = candidate_widths(task.layout, settings.candidates)
    net = Supernet(task.model, task.layout, widths, settings.candidates[-1])
    return net, Mixture(settings, task, net, widths)


def test_the_mixture_s_step_moves_theta_alone_and_lowers_the_loss(start: Task) -> None:
    net, found = mixture(start, AutoDim(candidates=(1, 2, 4), batch=600, eta=0.05))
    net.train()
    before = {key: t.clone() for key, t in net.state_dict().items()}
    found.step(next(start.valid.endless(600)))
    assert found.steps == 1
    assert torch.isfinite(found.theta).all()
    assert (found.theta != 0).any()
    assert all(torch.equal(before[key], t) for key, t in net.state_dict().items())
    assert all(weight.grad is None for weight in net.parameters())


def test_noise_is_gumbel_and_the_temperature_falls(start: Task) -> None:
    _, found = mixture(start, AutoDim(candidates=(1, 2), cooling=0.25, coldest=0.3))
    with torch.no_grad():
        found.theta[0] = torch.tensor([1.0, 0.0])
    torch.manual_seed(5)
    wins = sum(int(found.draw()[0, 0] > 0.5) for _ in range(4000)) / 4000
    assert wins == pytest.approx(float(torch.softmax(torch.tensor([1.0, 0.0]), 0)[0]), abs=0.03)
    temperatures = []
    for steps in (0, 1, 2, 3, 4):
        found.steps = steps
        temperatures.append(found.temperature)
    assert temperatures == [1, 0.75, 0.5, 0.3, 0.3]


def test_fields_grow_by_falling_chance_from_their_smallest_candidate() -> None:
    layout = Schema.of(a=100, b=100, c=3).layout(16)
    widths = candidate_widths(layout, (2, 4, 8))
    chances = np.array([[0.1, 0.2, 0.7], [0.5, 0.4, 0.1], [1.0, 0.0, 0.0]])
    sizes = {6: (2, 2, 2), 8: (4, 2, 2), 12: (8, 2, 2), 14: (8, 4, 2), 18: (8, 8, 2), 30: (8, 8, 2)}
    for columns, expected in sizes.items():
        mask = grow(layout, widths, chances, Budget.columns(columns))
        assert mask.widths == expected
        assert mask.kept == tuple(tuple(range(width)) for width in expected)


def test_a_budget_below_the_smallest_candidates_names_the_smallest(start: Task) -> None:
    with pytest.raises(BudgetError, match=r"too small for autodim.*smallest it can meet: 12 columns"):
        search(start, AutoDim(candidates=(2, 4)), Budget.columns(11))


@pytest.mark.parametrize("candidates", [(), (4, 2), (2, 2), (0, 2)])
def test_candidates_must_ascend(candidates: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="candidates"):
        AutoDim(candidates=candidates)
