"""Processes that hold parts of the tables train and search as one process with all of them. Needs TorchRec."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
from torch import Tensor

from fieldwise.core.plain_files import read_json
from fieldwise.core.registry import resolve
from fieldwise.core.schema import PADDING, Field, Schema
from fieldwise.data.store import Dataset, Split
from fieldwise.exports.folder import load
from fieldwise.models import MODELS
from fieldwise.models.dcnv2 import DCNv2
from fieldwise.models.fm import FM
from fieldwise.models.model import CTRModel, HeadModel
from fieldwise.processes.ranks import current, splitting
from fieldwise.searches import SEARCHES
from fieldwise.searches.search import search
from fieldwise.tables.embedding import FieldEmbedding
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
from tests.command_line import cli
from tests.memorized import SETTINGS as MEMORIZED
from tests.memorized import memorized_task
from tests.processes.many import on_ranks, started
from tests.processes.parts import RUN, files, in_place, of_result, task_of
from tests.searches.small_searches import small
from tests.trainings import Stop

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(find_spec("torchrec") is None, reason="needs TorchRec: CONTRIBUTING says how to install it"),
]
Weights = dict[str, Tensor]
FROM = 300
"""Rows from which tables are split: those of all fields of width 4, and of first-order weights."""
SHARDED = [*RUN, "--set", "run.tables=sharded", "--set", f"run.sharded_from={FROM}"]
WORKING = tuple(name for name in SEARCHES if small(name).shards)


def whole(model: CTRModel) -> tuple[Weights, Weights]:
    """Gradients and weights, with the tables of all processes."""
    found: Weights = {}
    grads: Weights = {}
    for name, weight in model.state_dict(keep_vars=True).items():
        if ".tables." not in name:
            found[name] = weight.detach()
            grads |= {name: weight.grad} if weight.grad is not None else {}
    for name, module in model.named_modules():
        for j, width in enumerate(module.layout.widths) if isinstance(module, FieldEmbedding) else ():
            if width:
                weight, rows = module.span(j)
                shards, pair = module.shards_of(j), [weight.detach()[rows], weight.grad]
                pair[1] = pair[1][rows] if pair[1] is not None else pair[0] * 0
                found[f"{name}.{j}"], grads[f"{name}.{j}"] = (
                    shards[0].whole(shards[1], part) if shards else part for part in pair
                )
    return grads, found


def step(task: Task, batch: int, method: Method = "dense-adam", penalty: bool = False) -> tuple[Weights, Weights]:
    """Gradients of the last step of one epoch, and the weights after it."""
    with splitting(FROM):
        model = task.new_model()
        assert isinstance(model, HeadModel)
        assert model.embedding.is_apart == (current().size > 1 and FROM == 300)
        regularity = SoftOrthogonality(strength=0.1)
        plan = TrainingPlan(
            stage="pretrain",
            forward=row_factored(model),
            evaluate=lambda: evaluate(model, task.valid),
            stop=lambda _: False,
            keep_best=False,
            penalty=(lambda: regularity.penalty(model.embedding)) if penalty else None,
            every_row=penalty,
        )
        fit(model, task, Training(batch=batch, epochs=1, optimizer=method), plan)
        return whole(model)


def first_steps(folder: Path) -> dict[str, tuple[Weights, Weights]]:
    """One step of every model on all rows, an odd number; one with a penalty; and one with lists."""
    models = {name: resolve("model", MODELS, name)(width=4) for name in MODELS}
    found = {name: step(task_of(folder, model), 901) for name, model in models.items()}
    found["lists"] = step(task_of_lists(), 901)
    return found | {"penalty": step(task_of(folder, DCNv2(width=4)), 901, penalty=True)}


def task_of_lists() -> Task:
    """Rows with several values of one field, and some without any."""
    schema, draw = Schema((Field("user", 500), Field("tags", 90, 3), Field("city", 3))), np.random.default_rng(0)
    user, tags, city = draw.integers(0, 500, (901, 1)), draw.integers(-1, 90, (901, 3)), draw.integers(0, 3, (901, 1))
    ids = np.concatenate([user, np.where(tags < 0, PADDING, tags), city], 1).astype(np.int32)
    split = Split(ids, draw.integers(0, 2, 901).astype(np.uint8))
    return Task(schema, split, split, FM(width=4), 3, "cpu")


@pytest.mark.parametrize("count", [2, 3])
def test_gradients_of_the_first_step(planted: Dataset, count: int) -> None:
    single = first_steps(planted.folder)
    found = on_ranks(count, first_steps, planted.folder)
    for name, (grads, weights) in single.items():
        assert found[0][name][0].keys() == grads.keys()
        for part, grad in grads.items():
            # batch normalization removes a bias before it: its gradient is 0, and rounding makes some of it
            close = 1e-5 if part == "head.mlp.0.bias" else 1e-6
            torch.testing.assert_close(found[0][name][0][part], grad, rtol=0, atol=close, msg=f"{name} {part}")
        for part in weights:
            assert all(torch.equal(found[0][name][1][part], other[name][1][part]) for other in found)


def epochs(folder: Path) -> dict[str, Weights]:
    """An epoch with every optimizer, in batches whose last has one row, one per process, or one fewer."""
    methods: tuple[Method, ...] = ("dense-adam", "adam", "rowwise-adagrad")
    found = {method: step(task_of(folder, FM(width=4), 301), 20, method)[1] for method in methods}
    return found | {f"{rows} rows": step(task_of(folder, FM(width=4), rows), 20, "adam")[1] for rows in (62, 63)}


def test_an_epoch_with_every_optimizer(planted: Dataset) -> None:
    single = epochs(planted.folder)
    found = on_ranks(3, epochs, planted.folder)
    for name, weights in single.items():
        for part, weight in weights.items():
            assert all(torch.equal(found[0][name][part], other[name][part]) for other in found)
            torch.testing.assert_close(found[0][name][part], weight, rtol=1e-3, atol=1e-5, msg=f"{name} {part}")


def both(folder: Path) -> tuple[Weights, Weights]:
    """Weights after an epoch with sharded tables, and with replicated ones."""
    task = task_of(folder, DCNv2(width=4), 301)
    sharded = step(task, 20)[1]
    with patch("tests.processes.test_sharded.FROM", 10**6):
        return sharded, step(task, 20)[1]


def test_two_processes_take_the_steps_of_replicated_tables(planted: Dataset) -> None:
    sharded, replicated = on_ranks(2, both, planted.folder)[0]
    assert sharded.keys() == replicated.keys()
    assert all(torch.equal(weight, replicated[name]) for name, weight in sharded.items())


def logits(folder: Path) -> Tensor:
    """Predictions in more forward passes than processes, and in fewer."""
    task = task_of(folder, DCNv2(width=4))
    with splitting(FROM):
        model = task.new_model()
        few = predictions(model, task.valid)[0]
        with patch("fieldwise.train.evaluate.ROWS", 100):
            return torch.cat([few, predictions(model, task.train)[0]])


def test_predictions_are_those_of_one_process(planted: Dataset) -> None:
    expected = logits(planted.folder)
    assert all(torch.equal(found, expected) for found in on_ranks(2, logits, planted.folder))


def searched(folder: Path) -> dict[str, tuple[tuple[int, ...], float, float]]:
    """Widths and validation AUCs of searches; one drops first-order weights too."""
    with splitting(FROM):
        task = task_of(folder, FM(width=4), 1200)
        task = task.starting_from(pretrain(task, Pretrain(batch=300, epochs=2, harmful="keep")).model)
        found = {name: search(task, small(name), "50%") for name in WORKING}
        found["bytes"] = search(task, small("rounds"), "5 KB float32")
        return {name: of_result(result, task) for name, result in found.items()}


def test_searches(planted: Dataset) -> None:
    assert set(WORKING) >= {"elimination", "ham", "sam", "sam-gs", "ham-p", "sseds", "magnitude", "uniform"}
    single = searched(planted.folder)
    first, second = on_ranks(2, searched, planted.folder)
    assert first == second
    for name, (widths, *aucs) in single.items():
        assert max(abs(a - b) for a, b in zip(first[name][0], widths, strict=True)) <= 1, name
        assert max(abs(a - b) for a, b in zip(first[name][1:], aucs, strict=True)) < 0.01, name


def retrained(folder: Path, home: Path | None, stop: int | None = None) -> Any:
    """The history of a retraining that distills and decays, with a checkpoint folder."""
    with splitting(FROM):
        task = task_of(folder, FM(width=4), 301)
        start = pretrain(task, Pretrain(batch=50, epochs=1)).model
        settings = Retrain(batch=50, epochs=3, decay=Decay(rate=1, table_rate=1, epochs=2.5))
        try:
            done = retrain(task.starting_from(start), start, settings, home, None if stop is None else Stop(stop))
        except KeyboardInterrupt:
            return None
        return [(epoch.loss, epoch.auc) for epoch in done.history], whole(done.model)[1]  # type: ignore[arg-type]


@pytest.mark.parametrize(("before", "after"), [(2, 2), (3, 1), (1, 2)])
def test_another_number_of_processes_resumes(planted: Dataset, tmp_path: Path, before: int, after: int) -> None:
    expected = on_ranks(after, retrained, planted.folder, None)[0]
    assert on_ranks(before, retrained, planted.folder, tmp_path, 2) == [None] * before
    assert read_json(tmp_path / "checkpoint.json")["number"] == 3
    history, weights = on_ranks(after, retrained, planted.folder, tmp_path)[0]
    if before == after:
        assert history == expected[0]
    for (loss, auc), (same, other) in zip(history[1:], expected[0][1:], strict=True):
        assert loss == pytest.approx(same, rel=1e-4)
        assert auc == pytest.approx(other, abs=1e-2)
    for name, weight in weights.items():
        torch.testing.assert_close(weight, expected[1][name], rtol=1e-2, atol=1e-4)


def without_harm() -> Any:
    with splitting(FROM):
        found = pretrain(memorized_task(), MEMORIZED)
        return [(harm.field, harm.left_out, harm.first_order) for harm in found.harms], found.model.layout.widths


def test_a_harmful_field_is_left_out_by_all_processes() -> None:
    first, second = on_ranks(2, without_harm)
    assert first == second == ([("time", True, False)], (4, 4, 0, 4))


def test_a_run_writes_what_one_process_writes(tmp_path: Path) -> None:
    (code, out, err), *others = started(2, in_place, [["run", *SHARDED, "--out", str(tmp_path / "two")]])
    assert code == 0, err
    assert "Report: " in out
    assert others == [(0, "", "")], "only the first process prints"
    keys = "pretrain.average", "retrain.average", "retrain.l2"  # what concerns all weights is off with sharded tables
    plain = [word for key in keys for word in ("--set", f"{key}=0")]
    assert cli("run", *RUN, *plain, "--out", tmp_path / "one").returncode == 0
    assert files(tmp_path / "two") == files(tmp_path / "one")
    two, one = (read_json(tmp_path / name / "record.json")[0] for name in ("two", "one"))
    for key in ("widths_after", "full_size", "compact_size", "full_bytes"):
        assert two[key] == one[key], key
    for key in ("full_test", "compact_test"):
        assert two[key]["auc"] == pytest.approx(one[key]["auc"], abs=1e-3)
    small_model = load(next((tmp_path / "two" / "seed-0" / "compact").iterdir())).model
    rows = Dataset.open(tmp_path / "two" / "dataset").test
    assert evaluate(small_model, rows).auc == pytest.approx(two["compact_test"]["auc"], abs=1e-6)
