"""Retraining towards a store: rounding with straight-through gradients, and evaluations of what will be stored."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest
import torch

from fieldwise.core.budget import Budget
from fieldwise.core.errors import SettingsError
from fieldwise.core.mask import Mask
from fieldwise.core.records import Epoch
from fieldwise.core.schema import Schema
from fieldwise.core.store import Store
from fieldwise.core.watcher import Watcher
from fieldwise.data.store import Dataset
from fieldwise.exports.folder import export, load
from fieldwise.models.deepfm import DeepFM
from fieldwise.models.model import CTRModel, HeadModel
from fieldwise.models.stored import StoredModel, stored
from fieldwise.searches.search import search
from fieldwise.searches.uniform import Uniform
from fieldwise.tables.lookup import Found
from fieldwise.tables.rounding import RoundedRows, rounding
from fieldwise.tables.row_factored import row_factored
from fieldwise.train.decay import Decay
from fieldwise.train.evaluate import evaluate
from fieldwise.train.plan import early_stop
from fieldwise.train.pretraining import Pretrain, pretrain
from fieldwise.train.retraining import Retrain, retrain, stored_for
from fieldwise.train.task import Task

QUICK: dict[str, Any] = {"batch": 256, "epochs": 3, "learning_rate": 0.01}


@pytest.fixture(scope="module")
def small(planted: Dataset) -> tuple[Task, CTRModel]:
    task = Task.of(planted, DeepFM(width=4), seed=3, device="cpu")
    task = task.starting_from(pretrain(task, Pretrain(batch=512, epochs=2, learning_rate=0.02)).model)
    return task, search(task, Uniform(), Budget.percent(50)).model


MIXED = Store("int4", int8=("city", "user"))


@pytest.mark.parametrize("store", ["float16", "int8", "int4", "int4 row", str(MIXED)])
def test_retraining_returns_what_it_evaluated(small: tuple[Task, CTRModel], store: str, tmp_path: Path) -> None:
    task, model = small
    found = retrain(task, model, Retrain(store=store, **QUICK))
    assert isinstance(found.model, StoredModel)
    best = max(epoch.kept_auc for epoch in found.history)
    assert evaluate(found.model, task.valid).auc == best
    export(found.model, tmp_path / "m")
    again = load(tmp_path / "m").model
    assert isinstance(again, StoredModel)
    assert str(again.store) == store
    assert evaluate(again, task.valid).auc == best


def test_a_rounded_training_follows_below_8_bits(small: tuple[Task, CTRModel], monkeypatch: pytest.MonkeyPatch) -> None:
    task, model = small
    fitted: list[int] = []
    monkeypatch.setattr("fieldwise.tables.rounding.RoundedRows.fit", lambda self: fitted.append(1))
    patiences: list[int] = []

    def stop(patience: int) -> Callable[[list[Epoch]], bool]:
        patiences.append(patience)
        return early_stop(patience)

    monkeypatch.setattr("fieldwise.train.retraining.early_stop", stop)

    def rounds(store: str, rounded: bool | None = None) -> bool:
        fitted.clear()
        settings = Retrain(store=Store.parse(store), rounded=rounded, patience=3, schedule="constant", **QUICK)
        history = retrain(task, model, settings).history
        assert [epoch.epoch for epoch in history] == list(range(len(history)))
        assert (len(history) > QUICK["epochs"] + 1) == bool(fitted)
        return bool(fitted)

    assert rounds("int4")
    assert patiences == [3, 6]  # the first epochs with rounding are often worse than none
    assert not rounds("int4", False)
    assert not rounds("int8")
    assert rounds("int8", True)
    assert not rounds("float16", True)


@pytest.mark.parametrize("store", [Store("int4"), MIXED])
def test_rounded_rows_are_the_stored_numbers(small: tuple[Task, CTRModel], store: Store) -> None:
    task, model = small
    model = deepcopy(model).eval()
    assert isinstance(model, HeadModel)
    ids = next(task.valid.ordered(200)).ids
    tables = [model.embedding, model.first_order]
    with rounding([t for t in tables if t is not None], store) as rounded:
        for rows in rounded:
            rows.fit()
        for forward in (model, row_factored(model)):
            torch.testing.assert_close(forward(ids), stored(model, store)(ids), atol=1e-5, rtol=1e-5)
        model.embedding(ids).sum().backward()
    table = model.embedding.tables[str(model.layout.widths[0])]
    assert table.grad is not None
    assert table.grad.abs().sum() > 0
    table.grad = None
    assert model.embedding.rounding is None


def test_scales_are_fitted_in_place(small: tuple[Task, CTRModel]) -> None:
    """A captured step would go on with the scales of other tensors."""
    _, model = small
    assert isinstance(model, HeadModel)
    with rounding([model.embedding], Store("int4")) as (rows,):
        model(torch.zeros(2, model.schema.places, dtype=torch.int32))
        read = [(grid.scales, grid.divisors) for grid in (*rows._grids.values(), *rows._whole.values())]
        assert len(read) == 2 * len(model.embedding.groups)
        assert not any(scales.any() for scales, _ in read)
        rows.fit()
        for scales, divisors in read:
            assert scales.min() > 0
            assert torch.equal(divisors, scales)


class Interrupt(Watcher):
    """Ends a training after some epochs."""

    def __init__(self, epochs: int) -> None:
        self._left = epochs

    def epoch(self, stage: str, epoch: Epoch) -> None:
        self._left -= 1
        if not self._left:
            raise KeyboardInterrupt


def test_while_the_rate_decays_rounding_begins_after_half_of_the_epochs(
    small: tuple[Task, CTRModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    task, model = small
    seen: list[bool] = []
    plain = RoundedRows.__call__

    def noted(self: RoundedRows, found: Found, width: int) -> Found:
        rows = plain(self, found, width)
        seen.append(rows is not found)
        return rows

    monkeypatch.setattr(RoundedRows, "__call__", noted)
    settings = Retrain(store=Store("int4"), batch=len(task.train), decay=Decay(epochs=6))
    assert len(retrain(task, model, settings).history) == 7
    per_step = len(seen) // 6
    assert per_step
    assert seen == [False] * 3 * per_step + [True] * 3 * per_step


@pytest.mark.parametrize(("changed", "epochs"), [({}, 5), ({"store": "int4"}, 4), ({"store": "int8"}, 5),
                                                 ({"store": "int8", "rounded": True}, 4)])  # fmt: skip
def test_a_training_that_rounds_tables_takes_fewer_epochs(
    small: tuple[Task, CTRModel], changed: dict[str, Any], epochs: int
) -> None:
    task, model = small
    settings = Retrain.model_validate({"batch": 2048, **changed})
    assert len(retrain(replace(task, start_epochs=8), model, settings).history) == 1 + epochs, "4.5 or 4"


@pytest.mark.parametrize("schedule", ["decay", "constant"])
@pytest.mark.parametrize("epochs", [2, 3, 4])
def test_an_interrupted_rounded_retraining_resumes_with_the_same_numbers(
    small: tuple[Task, CTRModel], tmp_path: Path, epochs: int, schedule: Literal["decay", "constant"]
) -> None:
    task, model = small
    settings = Retrain(store=Store("int4"), patience=9, schedule=schedule, **QUICK)
    whole = retrain(task, model, settings, tmp_path / "whole")
    assert len(whole.history) == 1 + QUICK["epochs"] * (2 if schedule == "constant" else 1)
    with pytest.raises(KeyboardInterrupt):
        retrain(task, model, settings, tmp_path / "parts", Interrupt(epochs))
    resumed = retrain(task, model, settings, tmp_path / "parts")
    assert [e.auc for e in resumed.history] == [e.auc for e in whole.history]
    assert torch.equal(resumed.model.embedding.table(0), whole.model.embedding.table(0))


def test_large_tables_are_rounded_where_they_are_read(
    small: tuple[Task, CTRModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fieldwise.tables.optimizer.LARGE", {"cpu": 0, "cuda": 0, "kernels": 0})
    task, model = small
    found = retrain(task, model, Retrain(store=Store("int4"), **QUICK))
    assert found.history[-1].auc > 0.5


def test_the_budget_decides_the_store() -> None:
    plain = Retrain()
    assert stored_for(plain, Budget.percent(25)) is plain
    assert stored_for(plain, Budget.bytes(900, "int4")).store == Store("int4")
    assert stored_for(plain, Budget.bytes(900)).store == Store()
    mixed, mask = Budget.bytes(900, "mixed"), Mask.all(Schema.of(a=9, b=4).layout(2))
    assert stored_for(plain, mixed, mask).store == Store("int4")
    assert stored_for(plain, mixed, mask.storing(("b",))).store == Store("int4", int8=("b",))
    for chosen in (Store("int8"), Store("int4", "row")):
        with pytest.raises(SettingsError, match=r"budget of 900 bytes int4 counts int4. They must be equal"):
            stored_for(Retrain(store=chosen), Budget.bytes(900, "int4"))


def test_a_stored_model_is_not_trained_again(small: tuple[Task, CTRModel]) -> None:
    task, model = small
    found = retrain(task, model, Retrain(store=Store("int8"), **QUICK))
    with pytest.raises(SettingsError, match=r"Got a StoredModel\. Allowed: a model"):
        retrain(task, found.model)  # type: ignore[arg-type]
    with pytest.raises(SettingsError, match="Got a StoredModel"):
        replace(task, start=None).starting_from(found.model)  # type: ignore[arg-type]
