"""The pruner on a CUDA device, and a compact model that moves between devices."""

import copy
from itertools import pairwise
from typing import Any

import pytest
import torch

from fieldwise.pruning.folding import fold
from fieldwise.pruning.rebuilding import describe, rebuild
from fieldwise.searches import HAM, HamP
from fieldwise.searches.pruner import Pruner
from tests.pruning.modules import CASES, loss_of, shaken

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]


@pytest.mark.parametrize(
    "name", ["cross", "batch norm", "bag, sum, weights", "read twice, tied", "factorization machine"]
)
def test_search_and_compaction_on_a_gpu(name: str) -> None:
    model, args = CASES[name]()
    there: tuple[Any, ...] = tuple(arg.cuda() if isinstance(arg, torch.Tensor) else arg for arg in args)
    pruner = Pruner(shaken(model).cuda(), there, HAM(), "40%")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    state = torch.cuda.get_rng_state()
    for _ in range(5):
        pruner.step(lambda: loss_of(model, there) + torch.rand((), device="cuda") * 0)
        assert torch.equal(torch.cuda.get_rng_state(), state)
        loss_of(model, there).backward()
        optimizer.step()
        optimizer.zero_grad()
        state = torch.cuda.get_rng_state()
    small = pruner.compact().eval()
    assert pruner.report is not None
    assert pruner.report.difference <= 1e-5
    with torch.no_grad():
        expected = small(*there)
        torch.testing.assert_close(copy.deepcopy(small).cpu()(*args).cuda(), expected, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(fold(small, there)(*there), expected, rtol=1e-4, atol=1e-4)
        again = rebuild(CASES[name]()[0], describe(small), small.state_dict()).eval()
        torch.testing.assert_close(again(*there), expected)


def test_random_gates_draw_from_a_stream_of_their_own() -> None:
    model, args = CASES["cross"]()
    there = (args[0].cuda(),)
    first = Pruner(shaken(model).cuda(), there, HamP(), "40%", seed=3)
    drawn = [first.state_dict()["method"]["drawn"]]
    for _ in range(3):
        first.step(lambda: loss_of(model, there))
        drawn.append(first.state_dict()["method"]["drawn"])
    assert not any(torch.equal(a, b) for a, b in pairwise(drawn))


def test_a_model_that_moves_after_the_pruner_was_made() -> None:
    model, args = CASES["cross"]()
    pruner = Pruner(shaken(model), args, HAM(), "40%")
    model.cuda()
    there = (args[0].cuda(),)
    pruner.step(lambda: loss_of(model, there))
    loss_of(model, there).backward()
