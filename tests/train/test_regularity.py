"""Orthogonality as a separate step."""

from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
import pytest
import torch
from torch import Tensor

from fieldwise.core.schema import Layout, Schema
from fieldwise.data.frame import Frame
from fieldwise.data.prepare import prepare
from fieldwise.models.dcnv2 import DCNv2
from fieldwise.models.fm import FM
from fieldwise.tables.embedding import FieldEmbedding
from fieldwise.train.pretraining import Pretrain, pretrain
from fieldwise.train.regularity import SELDOM, OrthogonalSteps, SoftOrthogonality
from fieldwise.train.task import Task
from tests.trainings import Stop, numbers, same


def gram_gap(table: Tensor) -> float:
    return float((table.T @ table - torch.eye(table.shape[1])).norm())


def test_a_weak_step_is_a_gradient_step_of_the_penalty() -> None:
    embedding = FieldEmbedding(Layout(Schema.of(user=30), (4,)), 0.1)
    settings = SoftOrthogonality(strength=1e-4, form="raw")
    settings.penalty(embedding).backward()
    before, grad = embedding.table(0).detach().clone(), embedding.tables["4"].grad
    steps = OrthogonalSteps(settings, embedding, batch=64)
    for _ in range(SELDOM):
        steps.step()
    assert torch.allclose(embedding.table(0) - before, -SELDOM * grad, rtol=0.01, atol=1e-8)


@pytest.mark.parametrize(("form", "strengths"), [("raw", (1e-2, 1.0, 1e6)), ("cosine", (1e-2, 1.0, 1e6))])
def test_steps_of_any_strength_never_blow_up_and_lead_to_orthogonal_columns(
    form: Literal["raw", "cosine"], strengths: tuple[float, ...]
) -> None:
    for strength in strengths:
        embedding = FieldEmbedding(Layout(Schema.of(user=300), (4,)), 1.0)
        embedding.table(0).data[:, 1] = 0.9 * embedding.table(0).data[:, 0] + 0.1 * embedding.table(0).data[:, 1]
        settings = SoftOrthogonality(strength=strength, form=form)
        before = float(settings.penalty(embedding).detach())
        steps = OrthogonalSteps(settings, embedding, batch=300)
        for _ in range(200 * SELDOM):
            steps.step()
        assert float(settings.penalty(embedding).detach()) < (0.5 if strength == 1e6 else 0.01) * before


def test_in_the_cosine_form_columns_turn_and_keep_their_lengths() -> None:
    embedding = FieldEmbedding(Layout(Schema.of(user=300), (4,)), 1.0)
    table = embedding.table(0).data
    table[:, 1] += 2 * table[:, 0]
    before = table.norm(dim=0)
    steps = OrthogonalSteps(SoftOrthogonality(strength=0.1), embedding, batch=300)
    for _ in range(100 * SELDOM):
        steps.step()
    assert torch.allclose(table.norm(dim=0), before, rtol=1e-4)
    assert (torch.nn.functional.normalize(table, dim=0).T @ table / before - torch.eye(4)).abs().max() < 1e-3


def test_a_large_table_is_stepped_less_often_and_as_much_more() -> None:
    schema = Schema.of(small=10, large=100)
    embedding = FieldEmbedding(Layout(schema, (2, 2)), 0.1)
    before = [embedding.table(j).detach().clone() for j in (0, 1)]
    steps = OrthogonalSteps(SoftOrthogonality(strength=1e-3, form="raw"), embedding, batch=5)
    moved = []
    for _ in range(40):
        steps.step()
        now = [embedding.table(j).detach().clone() for j in (0, 1)]
        moved.append([not torch.equal(a, b) for a, b in zip(before, now, strict=True)])
        before = now
    assert sum(small for small, _ in moved) == 40 // SELDOM
    assert sum(large for _, large in moved) == 2, "once in as many steps as it takes to read 100 rows by fives"


def test_steps_in_training_lower_the_correlation_of_columns_and_resume(task: Task, tmp_path: Path) -> None:
    def trained(strength: float, folder: Path | None = None, stop: Stop | None = None):  # type: ignore[no-untyped-def]
        regularity = SoftOrthogonality(strength=strength, form="raw")
        settings = Pretrain(batch=512, epochs=8, patience=8, learning_rate=0.02, regularity=regularity)
        return pretrain(task, settings, folder, stop)

    whole = trained(1.0)
    assert gram_gap(whole.model.embedding.table(0).detach()) < 0.5 * gram_gap(
        trained(0.0).model.embedding.table(0).detach()
    )
    with pytest.raises(KeyboardInterrupt):
        trained(1.0, tmp_path / "c", Stop(3))
    resumed = trained(1.0, tmp_path / "c")
    assert numbers(resumed) == numbers(whole)
    assert same(resumed.model.state_dict(), whole.model.state_dict())


@pytest.mark.parametrize("place", ["step", "loss"])
@pytest.mark.parametrize("empty", [0.0, 1e-30, 1e-14])
def test_a_column_of_no_length_has_no_direction_and_does_not_move(place: str, empty: float) -> None:
    embedding = FieldEmbedding(Layout(Schema.of(user=9), (3,)), 1.0)
    table = embedding.tables["3"]
    table.data[:, 1] *= empty
    before = table.detach().clone()
    settings = SoftOrthogonality(strength=1, form="cosine")
    penalty = settings.penalty(embedding)
    penalty.backward()
    assert torch.isfinite(penalty)
    assert table.grad is not None
    assert torch.isfinite(table.grad).all()
    assert table.grad[:, 1].abs().max() <= empty * 10
    assert table.grad[:, [0, 2]].abs().max() > 1e-3, "the others are still turned apart"
    if place == "step":
        steps = OrthogonalSteps(settings, embedding, batch=9)
        for _ in range(SELDOM):
            steps.step()
        assert torch.isfinite(table).all()
        assert table.detach()[:, 1].abs().max() <= empty * 10
        assert (table.detach() - before)[:, [0, 2]].abs().max() > 1e-3


@pytest.mark.parametrize("place", ["step", "loss"])
def test_a_field_of_which_every_value_is_rare_trains(tmp_path: Path, place: Literal["step", "loss"]) -> None:
    """Unique ids with `min_count = 2` are all unknown: a table of one row, initially zero."""
    draw = np.random.default_rng(0)
    columns = {
        "key": [f"k{i}" for i in range(400)],
        "city": draw.integers(0, 9, 400),
        "click": draw.integers(0, 2, 400),
    }
    data = prepare(Frame(frame=pa.table(columns), label="click", min_count=2), tmp_path / "data")
    assert data.schema.cardinalities[data.schema.names.index("key")] == 1
    settings = Pretrain(batch=64, epochs=2, regularity=SoftOrthogonality(strength=0.1, form="cosine", place=place))
    for model in (FM(width=4), DCNv2(width=4)):
        trained = pretrain(Task.of(data, model, device="cpu"), settings)
        assert all(torch.isfinite(weight).all() for weight in trained.model.parameters())
        assert len(trained.history) == 3
