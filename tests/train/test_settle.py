"""Orthogonality between two steps: row-wise updates must match dense Adam."""

from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest
import torch
from torch import nn

from fieldwise.data.store import Split
from fieldwise.models.dcnv2 import DCNv2
from fieldwise.models.deepfm import DeepFM
from fieldwise.models.fm import FM
from fieldwise.models.model import CTRModel, Model
from fieldwise.tables import optimizer
from fieldwise.tables.lookup import Distinct
from fieldwise.tables.optimizer import Method
from fieldwise.tables.rate import Rate
from fieldwise.tables.sparse_optimizers import SparseAdam
from fieldwise.train.pretraining import Pretrain, pretrain
from fieldwise.train.regularity import SoftOrthogonality
from fieldwise.train.task import Task
from tests.trainings import Stop, numbers, same

ONCE = Pretrain(batch=32, epochs=1, learning_rate=1e-2)


@pytest.fixture(autouse=True)
def _all_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every table counts as large."""
    monkeypatch.setattr(optimizer, "LARGE", {"cpu": 0})


@pytest.fixture
def few(task: Task) -> Task:
    """A task with 2,000 rows, so that most rows of a table miss most steps."""
    rows = Split(task.train_rows.ids[:2_000], task.train_rows.labels[:2_000])
    return replace(task, train_rows=rows, model=FM(width=4))


def trained(task: Task, method: Method, regularity: SoftOrthogonality) -> CTRModel:
    return pretrain(task, ONCE.model_copy(update={"optimizer": method, "regularity": regularity})).model


def off(ours: CTRModel, other: CTRModel) -> float:
    """The largest relative distance between two models' tables."""
    tables = [[*model.embedding.parameters()] for model in (ours, other)]
    return max(float((a - b).detach().norm() / b.detach().norm()) for a, b in zip(*tables, strict=True))


@pytest.mark.parametrize("form", ["cosine", "raw"])
@pytest.mark.parametrize("strength", [1e-3, 0.1])
def test_adam_by_rows_is_dense_adam_at_any_strength(few: Task, strength: float, form: Literal["cosine", "raw"]) -> None:
    regularity = SoftOrthogonality(strength=strength, form=form)
    dense = trained(few, "dense-adam", regularity)
    assert off(trained(few, "adam", regularity), dense) < 1e-4
    assert off(trained(few, "dense-adam", SoftOrthogonality(strength=0)), dense) > 1e-3, "it matters"


@pytest.mark.parametrize("model", [DeepFM(width=4, hidden=(8,)), DCNv2(width=16, hidden=(8,))])
def test_other_heads_and_tables_of_several_widths_too(few: Task, model: Model) -> None:
    task, regularity = replace(few, model=model), SoftOrthogonality(strength=0.1)
    assert off(trained(task, "adam", regularity), trained(task, "dense-adam", regularity)) < 1e-4


@pytest.mark.parametrize("method", ["adam", "rowwise-adagrad"])
def test_a_training_with_strong_steps_resumes_with_the_same_bits(few: Task, tmp_path: Path, method: Method) -> None:
    strong = SoftOrthogonality(strength=0.1)
    settings = ONCE.model_copy(update={"epochs": 2, "optimizer": method, "regularity": strong})
    whole = pretrain(few, settings)
    with pytest.raises(KeyboardInterrupt):
        pretrain(few, settings, tmp_path / "c", Stop(1))
    resumed = pretrain(few, settings, tmp_path / "c")
    assert numbers(resumed) == numbers(whole)
    assert same(resumed.model.state_dict(), whole.model.state_dict())


@pytest.mark.parametrize("share", [0.05, 0.9])
def test_only_the_rows_named_are_settled_and_later_steps_push_them_once(share: float) -> None:
    """Few rows catch up as copies, many in place; both must equal settling once at the end."""
    tables = [[nn.Parameter(torch.randn(400, width) * 0.01) for width in (3, 1)]]
    tables.append([nn.Parameter(table.detach().clone()) for table in tables[0]])
    known = torch.randperm(400)[: int(400 * share)].int()
    once, often = (SparseAdam(some, Rate(1e-2), Distinct()) for some in tables)
    for step in range(40):
        reads = known[torch.randint(len(known), (12, 1))]
        for rows in (once, often):
            both = torch.cat([rows.read(reads, True, place).at_places() for place in (0, 1)], 2)
            (both + 1).square().sum().backward()
            rows.step()
        if step % 7 == 0:
            before = [table.detach().clone() for table in tables[1]]
            often.settle(slice(100, 300))
            for table, old in zip(tables[1], before, strict=True):
                assert torch.equal(table[:100], old[:100])
                assert torch.equal(table[300:], old[300:])
                assert step == 0 or not torch.equal(table, old)
    once.settle()
    often.settle()
    for table, other in zip(*tables, strict=True):
        torch.testing.assert_close(table, other, rtol=1e-4, atol=1e-6)
    assert torch.equal(once.tensors()["last"], often.tensors()["last"]), "rows never read stay such"
