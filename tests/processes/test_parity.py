"""Two processes train, search and evaluate as one process with the same global batch does."""

from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import Tensor, nn

from fieldwise.core.registry import resolve
from fieldwise.core.schema import Schema
from fieldwise.core.store import Store
from fieldwise.data.store import Dataset
from fieldwise.models import MODELS
from fieldwise.models.dcnv2 import DCNv2
from fieldwise.models.factory import model_class
from fieldwise.models.fm import FM
from fieldwise.searches import SEARCHES
from fieldwise.searches.elimination import Elimination
from fieldwise.searches.search import search
from fieldwise.tables.optimizer import Method
from fieldwise.tables.row_factored import row_factored
from fieldwise.train.decay import Decay
from fieldwise.train.evaluate import evaluate, predictions
from fieldwise.train.loop import fit
from fieldwise.train.plan import Training, TrainingPlan
from fieldwise.train.pretraining import Pretrain, pretrain
from fieldwise.train.regularity import SoftOrthogonality
from fieldwise.train.retraining import Retrain, retrain
from fieldwise.train.task import Task
from tests.memorized import SETTINGS as MEMORIZED
from tests.memorized import memorized_task, tiered_task
from tests.processes.many import on_ranks
from tests.processes.parts import of_result, task_of
from tests.searches.small_searches import small
from tests.tiered_rows import joined_passes

Weights = dict[str, Tensor]


def step(task: Task, batch: int, method: Method = "dense-adam", penalty: bool = False) -> tuple[Weights, Weights]:
    """Gradients of the last step of one epoch, and the weights and statistics after it."""
    model = task.new_model()
    regularity = SoftOrthogonality(strength=0.1)
    plan = TrainingPlan(
        stage="pretrain",
        forward=row_factored(model),
        evaluate=lambda: evaluate(model, task.valid),
        stop=lambda _: False,
        keep_best=False,
        penalty=(lambda: regularity.penalty(model.embedding)) if penalty else None,
    )
    fit(model, task, Training(batch=batch, epochs=1, optimizer=method), plan)
    grads = {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}
    return grads, dict(model.state_dict())


class Own(nn.Module):
    """A user's module with batch normalization over tables, and a weight that nothing uses."""

    def __init__(self, schema: Schema) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(count, 4) for count in schema.cardinalities)
        self.norm, self.out = nn.BatchNorm1d(4 * len(schema)), nn.Linear(4 * len(schema), 1)
        self.unused = nn.Parameter(torch.ones(3))

    def forward(self, ids: Tensor) -> Tensor:
        """Logits (B, 1)."""
        each = [table(ids[:, place]) for place, table in enumerate(self.tables)]
        logits: Tensor = self.out(self.norm(torch.cat(each, 1)))
        return logits


def build(schema: Schema) -> nn.Module:
    return Own(schema)


def first_steps(folder: Path) -> dict[str, tuple[Weights, Weights]]:
    """One step of every model on all rows, an odd number; and one with a penalty."""
    models = {name: resolve("model", MODELS, name)(width=4) for name in MODELS} | {"factory": model_class(build)()}
    found = {name: step(task_of(folder, model), 901) for name, model in models.items()}
    return found | {"penalty": step(task_of(folder, DCNv2(width=4)), 901, penalty=True)}


def test_gradients_of_the_first_step(planted: Dataset) -> None:
    single = first_steps(planted.folder)
    first, second = on_ranks(2, first_steps, planted.folder)
    for name, (grads, weights) in single.items():
        assert grads
        assert first[name][0].keys() == grads.keys()
        for part, grad in grads.items():
            # batch normalization removes a bias before it: its gradient is 0, and rounding makes some of it
            close = 1e-5 if part == "head.mlp.0.bias" else 1e-6
            torch.testing.assert_close(first[name][0][part], grad, rtol=0, atol=close)
        for part, weight in weights.items():
            assert torch.equal(first[name][1][part], second[name][1][part]), "processes hold different weights"
            if "running" in part:
                torch.testing.assert_close(first[name][1][part], weight, rtol=1e-5, atol=1e-6)


def epochs(folder: Path) -> dict[str, tuple[Weights, Weights]]:
    """An epoch of FM with every optimizer, in batches whose last has one row, one per process, or one fewer."""
    methods: tuple[Method, ...] = ("dense-adam", "adam", "rowwise-adagrad")
    found = {method: step(task_of(folder, FM(width=4), 301), 20, method) for method in methods}
    return found | {f"{rows} rows": step(task_of(folder, FM(width=4), rows), 20) for rows in (62, 63)}


def test_an_epoch_with_every_optimizer(planted: Dataset) -> None:
    single = epochs(planted.folder)
    found = on_ranks(3, epochs, planted.folder)
    for name, (_, weights) in single.items():
        for part, weight in weights.items():
            assert all(torch.equal(found[0][name][1][part], other[name][1][part]) for other in found)
            torch.testing.assert_close(found[0][name][1][part], weight, rtol=1e-3, atol=1e-5)


def logits(folder: Path) -> Tensor:
    """Predictions in more forward passes than processes, and in fewer; in float64, which all processes must know."""
    task = task_of(folder, DCNv2(width=4))
    model = task.new_model().double()
    few = predictions(model, task.valid)[0]
    with patch("fieldwise.train.evaluate.ROWS", 100):
        return torch.cat([few, predictions(model, task.train)[0]])


def test_predictions_are_those_of_one_process(planted: Dataset) -> None:
    expected = logits(planted.folder)
    assert all(torch.equal(found, expected) for found in on_ranks(2, logits, planted.folder))


def searched(folder: Path, names: tuple[str, ...]) -> dict[str, tuple[tuple[int, ...], float, float]]:
    """Widths and validation AUCs of searches."""
    task = task_of(folder, FM(width=4), 1200)
    task = task.starting_from(pretrain(task, Pretrain(batch=300, epochs=2, harmful="keep")).model)
    found = {name: search(task, small(name), "50%") for name in names}
    return {name: of_result(result, task) for name, result in found.items()}


def test_every_search(planted: Dataset) -> None:
    names = tuple(SEARCHES)
    single = searched(planted.folder, names)
    first, second = on_ranks(2, searched, planted.folder, names)
    assert first == second
    for name, (widths, *aucs) in single.items():
        assert max(abs(a - b) for a, b in zip(first[name][0], widths, strict=True)) <= 1, name
        assert max(abs(a - b) for a, b in zip(first[name][1:], aucs, strict=True)) < 0.01, name


def retrained(folder: Path, home: Path | None, store: str) -> Any:
    """The history of a retraining that distills, decays, and rounds or averages, with a checkpoint folder."""
    task = task_of(folder, FM(width=4), 301)
    start = pretrain(task, Pretrain(batch=50, epochs=1)).model
    slow = Decay(rate=1, table_rate=1)  # rounding differences grow with the rate
    settings = Retrain(batch=50, epochs=3, store=store, decay=slow, optimizer="adam")  # rounds from the second on
    done = retrain(task.starting_from(start), start, settings, home)
    return [(epoch.loss, epoch.auc, epoch.averaged_auc) for epoch in done.history]


@pytest.mark.parametrize("store", ["int4", "float32"])
def test_retraining_resumes_with_another_number_of_processes(store: str, planted: Dataset, tmp_path: Path) -> None:
    first, second = on_ranks(2, retrained, planted.folder, tmp_path / "two", store)
    assert first == second
    assert (first[-1][2] is None) == (store == "int4"), "a retraining that does not round averages"
    single = retrained(planted.folder, tmp_path / "two", store)
    assert single == first, "the checkpoint of two processes was not used"
    expected = retrained(planted.folder, None, store)
    torch.testing.assert_close(
        torch.tensor([loss for loss, *_ in first[1:]]),
        torch.tensor([loss for loss, *_ in expected[1:]]),
        rtol=1e-4,
        atol=0,
    )


def retrained_tiers(store: str) -> Any:
    """The history of a retraining of columns that only some tiers have, and the rows of passes over joined rows."""
    task = tiered_task(FM(width=6))
    with joined_passes() as passes:
        start = task.starting_from(pretrain(task, Pretrain(batch=300, epochs=1, harmful="keep")))
        found = search(start, Elimination(), "30%")
        slow = Decay(rate=1, table_rate=1, epochs=1.5)
        done = retrain(start, found.model, Retrain(batch=300, epochs=2, store=Store.parse(store), decay=slow))
    return [epoch.loss for epoch in done.history[1:]], passes


@pytest.mark.parametrize("store", ["int4", "float32"])
def test_processes_share_batches_of_joined_rows(store: str) -> None:
    (first, passes), (second, _) = on_ranks(2, retrained_tiers, store)
    expected, alone = retrained_tiers(store)
    assert first == second
    assert (passes.count(150), alone.count(300)) == (15, 15), "ten steps in one epoch, and five in half of one"
    torch.testing.assert_close(torch.tensor(first), torch.tensor(expected), rtol=1e-4, atol=0)


def without_harm(tiers: bool) -> Any:
    """What pretraining leaves out of rows with a field that memorizes."""
    found = pretrain(tiered_task() if tiers else memorized_task(), MEMORIZED)
    return [(harm.field, harm.left_out, harm.first_order) for harm in found.harms], found.model.layout.widths


def test_a_harmful_field_is_left_out_by_all_processes() -> None:
    first, second = on_ranks(2, without_harm, False)
    assert first == second == ([("time", True, False)], (4, 4, 0, 4))


def test_tiers_of_a_harmful_column_are_left_out_by_all_processes() -> None:
    first, second = on_ranks(2, without_harm, True)
    assert first == second == ([("time", True, False)], (4, 4, 4, 4, 0, 0, 4))
