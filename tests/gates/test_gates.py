"""The contract of every gate, and each gate's formula by hand."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from fieldwise.core.registry import resolve
from fieldwise.gates import GATES
from fieldwise.gates.gate import Gate, GateSettings
from fieldwise.gates.ham import HAMGate
from fieldwise.gates.ham_p import HamPGate
from fieldwise.gates.sam import SAMGate
from fieldwise.gates.sam_gs import SamGSGate
from fieldwise.gates.sam_sigmoid import SamSigmoidGate

ONES = torch.ones(6, dtype=torch.int64)


@pytest.fixture(params=GATES)
def gate(request: pytest.FixtureRequest) -> Gate:
    settings: GateSettings = resolve("gate", GATES, request.param)()
    return settings.build(ONES, 3)


def test_values_and_scores_have_one_number_per_column(gate: Gate) -> None:
    for values in (gate.draw(), gate.for_evaluation(), gate.settled(torch.ones(6))):
        assert values.shape == (6,)
        assert values.dtype == torch.float32
        assert ((values >= 0) & (values <= 1)).all()
    assert gate.scores().shape == (6,)
    assert torch.isfinite(gate.scores()).all()
    assert gate.live().dtype == torch.bool


def test_a_column_whose_gradient_is_negative_rises_above_the_others(gate: Gate) -> None:
    gate.draw()
    gate.step(torch.tensor([-1.0, 0, 0, 0, 0, 1.0]))
    scores = gate.scores()
    assert scores[0] > scores[1] > scores[5]


def test_large_steps_stay_in_range(gate: Gate) -> None:
    for sign in (1e6, -1e6, 1e6):
        gate.draw()
        gate.step(torch.full((6,), sign))
    assert torch.isfinite(gate.draw()).all()
    assert torch.isfinite(gate.scores()).all()


def test_one_ham_step_is_the_formula_with_the_penalty_outside_the_learning_rate() -> None:
    gate = HAMGate(epsilon=0.01, eta=1e-3, mu=5e-5).build(ONES, 3)
    grad = torch.tensor([0.5, -0.25, 0.0, 8.0, -16.0, 10.0])
    gate.step(grad)
    # 6 live columns against 3: the penalty lowers alpha by mu, not by eta * mu
    expected = [0.01 - 0.001 * g - 0.00005 for g in grad.tolist()]
    assert gate.alpha.tolist() == pytest.approx(expected, abs=1e-15)
    gate.alpha = torch.tensor([0.1, 0.1, -0.1, -0.1, -0.1, -0.1], dtype=torch.float64)
    gate.step(torch.zeros(6))
    assert gate.alpha.tolist() == pytest.approx([0.10005, 0.10005, *[-0.09995] * 4], abs=1e-15)
    gate.alpha = torch.tensor([0.1, 0.1, 0.1, -0.1, -0.1, -0.1], dtype=torch.float64)
    before = gate.alpha.clone()
    gate.step(torch.zeros(6))
    assert torch.equal(gate.alpha, before), "at the target the penalty is zero"


def test_the_penalty_takes_epsilon_over_mu_steps_to_zero() -> None:
    gate = HAMGate().build(ONES, 3)
    for _ in range(199):
        gate.step(torch.zeros(6))
    assert gate.live().all()
    counts = []
    for _ in range(6):
        gate.step(torch.zeros(6))
        counts.append(int(gate.live().sum()))
    assert set(counts) == {0, 6}, "equal columns cross zero together, and below the target the penalty changes sign"


def test_ham_weighs_columns_by_their_cost() -> None:
    costs = torch.tensor([3439, 2, 2, 2, 2, 2])
    gate = HAMGate().build(costs, 3440)
    gate.alpha = torch.tensor([0.1, 0.1, -0.1, -0.1, -0.1, -0.1], dtype=torch.float64)
    gate.step(torch.zeros(6))
    assert gate.alpha[0] < 0.1, "3,441 of 3,440: two columns are too many"
    gate.alpha = torch.tensor([-0.1, 0.1, 0.1, 0.1, 0.1, 0.1], dtype=torch.float64)
    gate.step(torch.zeros(6))
    assert gate.alpha[0] > -0.1, "10 of 3,440: five columns are too few"


def test_ham_equals_a_slow_numpy_reference_over_a_whole_search() -> None:
    draw = np.random.default_rng(0)
    gate, limit = HAMGate(eta=0.01).build(ONES, 3), 3
    alpha = [0.01] * 6
    seen = set()
    for _ in range(600):
        grad = draw.normal(size=6).astype(np.float32)
        live = sum(1 for a in alpha if a > 0)
        seen.add(live)
        penalty = (live > limit) - (live < limit)
        alpha = [a - 0.01 * float(g) - 5e-5 * penalty for a, g in zip(alpha, grad, strict=True)]
        gate.step(torch.from_numpy(grad))
        assert gate.alpha.tolist() == pytest.approx(alpha, abs=1e-12)
        assert gate.draw().tolist() == [float(a > 0) for a in alpha]
    assert min(seen) < 3 < max(seen), "the reference crossed the target both ways"


def test_sam_is_clipped_gradient_descent() -> None:
    gate = SAMGate(eta=0.1).build(ONES, 3)
    gate.step(torch.tensor([1.0, -1.0, 10.0, -10.0, 0.0, 2.0]))
    assert gate.draw().tolist() == pytest.approx([0.4, 0.6, 0.0, 1.0, 0.5, 0.3])


def test_sam_sigmoid_goes_through_the_sigmoid() -> None:
    gate = SamSigmoidGate(eta=0.1, start=0.8).build(ONES, 3)
    assert gate.draw().tolist() == pytest.approx([0.8] * 6)
    gate.step(torch.full((6,), 2.0))
    expected = math.log(0.8 / 0.2) - 0.1 * 2.0 * 0.8 * 0.2
    assert gate.alpha.tolist() == pytest.approx([expected] * 6)


@pytest.mark.parametrize("temperature", [1.0, 0.1])
def test_sam_gs_follows_autograd_through_its_noise(temperature: float) -> None:
    gate = SamGSGate(eta=0.01, temperature=temperature).build(ONES, 3)
    torch.manual_seed(4)
    drawn = gate.draw()
    torch.manual_seed(4)
    u = torch.rand(6, dtype=torch.float64)
    alpha = torch.full((6,), 0.5, dtype=torch.float64, requires_grad=True)
    value = torch.sigmoid((torch.log(alpha / (1 - alpha)) + torch.log(u / (1 - u))) / temperature)
    assert torch.allclose(value.float(), drawn)
    grad = torch.randn(6)
    (slope,) = torch.autograd.grad(value, alpha, grad.double())
    gate.step(grad)
    assert torch.allclose(gate.alpha, (alpha - 0.01 * slope).detach())
    assert gate.for_evaluation().shape == (6,)


def test_ham_p_tosses_coins_and_steps_straight_through() -> None:
    gate = HamPGate(start=0.3, eta=0.1).build(torch.ones(20_000, dtype=torch.int64), 3)
    first, second = gate.draw(), gate.draw()
    assert set(first.unique().tolist()) == {0.0, 1.0}
    assert first.mean().item() == pytest.approx(0.3, abs=0.02)
    assert not torch.equal(first, second)
    gate.step(torch.ones(20_000))
    assert gate.for_evaluation()[0].item() == pytest.approx(0.2)


def test_only_ham_settles_on_the_selected_mask() -> None:
    mask: Tensor = torch.tensor([1.0, 0, 0, 1, 1, 0])
    assert torch.equal(HAMGate().build(ONES, 3).settled(mask), mask)
    for settings in (SAMGate(), SamSigmoidGate(), SamGSGate(), HamPGate()):
        gate = settings.build(ONES, 3)
        assert torch.equal(gate.settled(mask), gate.for_evaluation())
