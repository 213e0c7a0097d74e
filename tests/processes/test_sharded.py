"""Processes that hold parts of the tables train and search as one process with all of them. Needs TorchRec."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from fieldwise.data.store import Dataset
from fieldwise.models.fm import FM
from fieldwise.models.model import CTRModel
from fieldwise.processes.ranks import splitting
from fieldwise.tables.embedding import FieldEmbedding
from fieldwise.tables.optimizer import Method
from fieldwise.tables.row_factored import row_factored
from fieldwise.train.evaluate import evaluate
from fieldwise.train.loop import fit
from fieldwise.train.plan import Training, TrainingPlan
from fieldwise.train.regularity import SoftOrthogonality
from fieldwise.train.task import Task
from tests.processes.many import on_ranks
from tests.processes.test_parity import task_of

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(find_spec("torchrec") is None, reason="needs TorchRec: CONTRIBUTING says how to install it"),
]

FROM = 300
"""Rows from which tables are split: those of all fields of width 4, and not those of narrower ones."""


def whole(model: CTRModel) -> dict[str, Tensor]:
    """All weights, with the tables of all processes."""
    found = {name: weight.detach() for name, weight in model.state_dict().items() if ".tables." not in name}
    for name, module in model.named_modules():
        if isinstance(module, FieldEmbedding):
            for j, width in enumerate(module.layout.widths):
                if width:
                    shards, part = module.shards_of(j), module.table(j).detach()
                    found[f"{name}.{j}"] = shards[0].whole(shards[1], part) if shards else part
    return found


def step(task: Task, batch: int, method: Method, penalty: bool = False) -> dict[str, Tensor]:
    """Weights after one epoch."""
    with splitting(FROM):
        model = task.new_model()
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


def epochs(folder: Path) -> dict[str, dict[str, Tensor]]:
    """One epoch with every optimizer, in batches whose last has one row, one per process, or one fewer."""
    methods: tuple[Method, ...] = ("dense-adam", "adam", "rowwise-adagrad")
    found: dict[str, Any] = {method: step(task_of(folder, FM(width=4), 301), 20, method) for method in methods}
    found |= {f"{rows} rows": step(task_of(folder, FM(width=4), rows), 20, "adam") for rows in (62, 63)}
    return found | {"penalty": step(task_of(folder, FM(width=4), 301), 100, "adam", True)}


@pytest.mark.parametrize("count", [2, 3])
def test_an_epoch_with_every_optimizer(planted: Dataset, count: int) -> None:
    single = epochs(planted.folder)
    found = on_ranks(count, epochs, planted.folder)
    assert not isinstance(found[0], BaseException), found[0]
    for name, weights in single.items():
        for part, weight in weights.items():
            assert all(torch.equal(found[0][name][part], other[name][part]) for other in found)
            torch.testing.assert_close(found[0][name][part], weight, rtol=1e-3, atol=1e-5, msg=f"{name} {part}")
