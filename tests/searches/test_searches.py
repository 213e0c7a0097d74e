"""The contract of every search."""

import shutil
from dataclasses import replace
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
import torch

from fieldwise.core.budget import Budget
from fieldwise.core.errors import BudgetError, DataError, SettingsError
from fieldwise.core.mask import Mask
from fieldwise.core.records import Epoch
from fieldwise.core.watcher import Watcher
from fieldwise.data.store import Dataset
from fieldwise.searches import HAM, SAM, SEARCHES
from fieldwise.searches.gated import Stage
from fieldwise.searches.random import Random
from fieldwise.searches.search import SearchResult, search
from fieldwise.searches.uniform import Uniform
from fieldwise.train.evaluate import evaluate
from fieldwise.train.task import Task
from tests.searches.small_searches import TRAINED, small

BUDGETS = [Budget.columns(7), Budget.parameters(1500), Budget.bytes(6000, "float16"), Budget.percent(40)]


@pytest.mark.parametrize("name", SEARCHES)
def test_every_search_gives_multiples_where_they_are_asked_for(name: str, start: Task) -> None:
    budget = Budget.parse("60% columns align 2")
    result = search(start, small(name), budget)
    assert result.mask.columns <= budget.limit(start.layout)
    assert [width for width in result.mask.widths if width % 2] == []
    assert result.mask.columns >= budget.limit(start.layout) - 1, "no two further columns fit"


@pytest.mark.parametrize("budget", BUDGETS, ids=str)
@pytest.mark.parametrize("name", SEARCHES)
def test_every_search_meets_the_budget_exactly_as_defined(name: str, budget: Budget, start: Task) -> None:
    assert start.start is not None
    before = {key: t.clone() for key, t in start.start.state_dict().items()}
    state = torch.get_rng_state()
    result = search(start, small(name), budget)
    costs, limit = budget.costs(start.layout), budget.limit(start.layout)
    spent = int(costs[result.mask.vector].sum())
    assert spent == limit if budget.unit == "columns" else spent <= limit
    left = costs[~result.mask.vector]
    if name != "rounds":  # dropped columns do not return, even if they would fit at the end
        assert not len(left) or left.min() > limit - spent
    assert result.model.layout == result.mask.layout
    if name not in TRAINED:  # those: test_start.py
        assert result.summary.selected_auc == evaluate(result.model, start.valid).auc
    assert torch.equal(torch.get_rng_state(), state), "the global random state is restored"
    assert all(torch.equal(before[key], t) for key, t in start.start.state_dict().items())


@pytest.mark.parametrize("name", SEARCHES)
def test_the_same_seed_gives_the_same_mask(name: str, start: Task) -> None:
    first, second = (search(start, small(name), BUDGETS[0]) for _ in range(2))
    assert first.mask == second.mask
    assert first.summary == second.summary


@pytest.mark.parametrize("name", SEARCHES)
def test_no_search_reads_the_test_rows(name: str, start: Task, planted: Dataset, tmp_path: Path) -> None:
    """Without a test split, every search ends with the same mask and weights."""
    shutil.copytree(planted.folder, tmp_path / "data")
    for path in (tmp_path / "data").glob("test.*"):
        path.unlink()
    without = Dataset.open(tmp_path / "data")
    with pytest.raises(DataError, match="the test split cannot be read"):
        _ = without.test
    assert start.start is not None
    task = Task.of(without, start.model, start.seed, "cpu").starting_from(start.start)
    first, second = search(start, small(name), BUDGETS[0]), search(task, small(name), BUDGETS[0])
    assert first.mask == second.mask
    assert first.summary == second.summary
    weights, again = first.model.state_dict(), second.model.state_dict()
    assert all(torch.equal(weights[key], again[key]) for key in weights)


def test_an_impossible_budget_is_refused_before_any_work(start: Task) -> None:
    with pytest.raises(BudgetError, match="above the full size of 24 columns"):
        search(start, small("ham"), Budget.columns(25))


@pytest.mark.parametrize("name", SEARCHES)
def test_a_search_without_pretrained_weights_says_what_it_needs(name: str, start: Task) -> None:
    task, settings = replace(start, start=None), small(name)
    if settings.uses_pretrained:
        with pytest.raises(SettingsError, match=r"needs pretrained weights.*task\.starting_from\(fw\.pretrain"):
            search(task, settings, BUDGETS[0])
    else:
        assert search(task, settings, BUDGETS[0]).mask.columns == 7


def test_a_result_over_budget_cannot_be_made(start: Task) -> None:
    result = search(start, Uniform(), Budget.columns(9))
    with pytest.raises(AssertionError, match="over the budget"):
        SearchResult(Budget.columns(8), result.mask, result.model, result.summary)


def test_uniform_gives_every_field_the_same_width(start: Task) -> None:
    assert search(start, Uniform(), Budget.columns(12)).mask.widths == (2,) * 6
    assert search(start, Uniform(), Budget.columns(14)).mask.widths == (3, 3, 2, 2, 2, 2)


def test_random_differs_by_seed(start: Task) -> None:
    other = Task(start.schema, start.train_rows, start.valid_rows, start.model, 4, "cpu", start.start)
    assert search(start, Random(), BUDGETS[0]).mask != search(other, Random(), BUDGETS[0]).mask


def test_ham_evaluates_what_it_selects_and_soft_gates_do_not(start: Task) -> None:
    gaps = {}
    for name in ("ham", "sam", "sam-sigmoid", "sam-gs", "ham-p"):
        summary = search(start, small(name), BUDGETS[0]).summary
        assert summary.evaluated_auc is not None
        gaps[name] = abs(summary.evaluated_auc - summary.selected_auc)
    assert gaps["ham"] < 1e-6
    assert all(gap > 1e-3 for name, gap in gaps.items() if name != "ham"), gaps


def test_a_masked_column_whose_return_lowers_the_loss_comes_back(start: Task) -> None:
    """With almost no size penalty, only the gradient changes masked columns."""
    assert start.start is not None
    model = start.starting_model()
    settings = HAM(batch=256, epochs=11, gate={"eta": 1.0, "mu": 1e-12})
    stage = Stage(settings, start, model, Mask.all(model.layout), BUDGETS[0])
    stage.gate.alpha[:4] = -1e-4  # columns of `user`, which the labels depend on
    ids, labels = (torch.from_numpy(x) for x in (start.valid_rows.ids, start.valid_rows.labels))
    values = stage.gate.draw().requires_grad_()
    model.eval()
    torch.nn.functional.binary_cross_entropy_with_logits(model(ids, values), labels.float()).backward()
    assert values.grad is not None
    helps = values.grad[:4] < 0
    assert helps.any(), "the return of some column lowers the loss"
    returned = torch.zeros(4, dtype=torch.bool)  # at any time: near zero, columns switch often
    for batch in islice(start.valid.endless(256), 200):
        stage._gate_step(batch)
        returned |= stage.gate.live()[:4]
    assert returned[helps].all()
    assert int(stage.trace.tensors()["reactivated"].sum()) >= int(helps.sum())


def test_the_gate_s_step_touches_neither_weights_nor_statistics(start: Task) -> None:
    model = start.starting_model()
    before = {key: t.clone() for key, t in model.state_dict().items()}
    stage = Stage(HAM(batch=256), start, model, Mask.all(model.layout), BUDGETS[0])
    stage._gate_step(next(start.valid.endless(256)))
    assert all(torch.equal(before[key], t) for key, t in model.state_dict().items())
    assert all(weight.grad is None for weight in model.parameters())


def test_the_trace_holds_every_step(start: Task) -> None:
    result = search(start, HAM(epochs=2, batch=256, trace_every=5), BUDGETS[0])
    (trace,) = result.traces
    arrays, steps = trace.tensors(), result.summary.steps
    assert steps == 2 * 19
    assert arrays["live"].shape == arrays["cost"].shape == arrays["reactivated"].shape == (steps,)
    assert arrays["scores"].shape == (8, 24)
    assert arrays["live"][0] == 24
    assert result.summary.epochs == 2
    assert [epoch.epoch for epoch in result.history] == [0, 1, 2]


def test_every_stage_gives_multiples_where_the_last_does(start: Task) -> None:
    result = search(start, HAM(epochs=1, batch=256, stages=("75% columns", "13")), Budget(7, align=2))
    assert result.mask.columns == 6
    assert [width for width in result.mask.widths if width % 2] == []


def test_later_stages_search_among_what_earlier_ones_kept(start: Task) -> None:
    result = search(start, HAM(epochs=1, batch=256, stages=("75% columns", "12")), Budget.columns(6))
    kept = [set(trace.columns.tolist()) for trace in result.traces]
    assert [len(columns) for columns in kept] == [24, 18, 12]
    assert kept[0] > kept[1] > kept[2] > set(result.mask.indices.tolist())
    assert result.mask.columns == 6
    assert [trace.limit for trace in result.traces] == [18, 12, 6]


class Cut(Watcher):
    """Raises after an epoch of the search, like a power cut."""

    def epoch(self, stage: str, epoch: Epoch) -> None:
        if epoch.epoch == 1:
            raise KeyboardInterrupt


@pytest.mark.parametrize("name", ["ham", "sam-gs", "ham-p", "autodim", "optembed", "pep", "rounds"])
def test_an_interrupted_search_ends_with_the_same_mask_and_trace(name: str, start: Task, tmp_path: Path) -> None:
    whole = search(start, small(name), BUDGETS[0])
    with pytest.raises(KeyboardInterrupt):
        search(start, small(name), BUDGETS[0], tmp_path, Cut())
    resumed = search(start, small(name), BUDGETS[0], tmp_path)
    assert resumed.mask == whole.mask
    assert resumed.summary == whole.summary
    for one, other in zip(whole.traces, resumed.traces, strict=True):
        first, second = one.tensors(), other.tensors()
        assert all(torch.equal(first[key], second[key]) for key in first)
    weights, again = whole.model.state_dict(), resumed.model.state_dict()
    assert all(torch.equal(weights[key], again[key]) for key in weights)


def stopped(ham: HAM, costs: list[float], aucs: list[float]) -> bool:
    """Whether a search with one step per epoch stops after these costs and AUCs; the target is 10."""

    trace = SimpleNamespace(steps=len(costs), tensors=lambda: {"cost": torch.tensor(costs)})
    stage = SimpleNamespace(gate=SimpleNamespace(limit=10), trace=trace)
    history = [Epoch(epoch=i, loss=1.0, auc=a, log_loss=1.0, seconds=0.1) for i, a in enumerate([0.9, *aucs])]
    return ham.stop(cast(Stage, stage), history)


def test_ham_stops_near_the_target_once_auc_stops_improving() -> None:
    ham = HAM(patience=2, near=0.25)
    assert not stopped(ham, [90, 40, 30], [0.9, 0.8, 0.7]), "away from the target nothing counts"
    assert not stopped(ham, [90, 40, 10, 11], [0.9, 0.8, 0.7, 0.6]), "near for too short a time"
    assert stopped(ham, [90, 40, 10, 11, 9], [0.9, 0.8, 0.7, 0.6, 0.65])
    assert not stopped(ham, [90, 40, 10, 11, 9], [0.9, 0.8, 0.7, 0.6, 0.75]), "still improving"
    assert not stopped(ham, [90, 40, 10, 11, 20], [0.9, 0.8, 0.7, 0.6, 0.65]), "left the target again"
    assert not stopped(HAM(patience=0), [10] * 9, [0.7] * 9)
    assert not SAM().stop(None, [])  # type: ignore[arg-type]
