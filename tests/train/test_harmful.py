"""Harmful fields: suspected, settled by a training without them, and left out."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fieldwise.core.automatic import chosen
from fieldwise.core.budget import Budget
from fieldwise.core.records import Epoch, Harm
from fieldwise.core.schema import PADDING, Field, Schema
from fieldwise.core.settings import validate
from fieldwise.core.watcher import Watcher
from fieldwise.data.store import Dataset, Split
from fieldwise.models.model import CTRModel
from fieldwise.tables.optimizer import Optimizer
from fieldwise.train import harmful
from fieldwise.train.decay import Decay
from fieldwise.train.evaluate import evaluate
from fieldwise.train.harmful import without
from fieldwise.train.plan import early_stop
from fieldwise.train.pretraining import Pretrain, pretrain
from fieldwise.train.retraining import Retrain, retrain
from fieldwise.train.task import Task
from fieldwise.train.trained import Trained
from tests.memorized import MODEL, SCHEMA, SETTINGS, memorized_task, split
from tests.models.factories import deep
from tests.trainings import Stop, numbers, same

KEEP = SETTINGS.model_copy(update={"harmful": "keep"})


@pytest.fixture(scope="module")
def kept() -> Trained[CTRModel]:
    """The full model, with the harmful field."""
    return pretrain(memorized_task(), KEEP)


@pytest.fixture(scope="module")
def dropped() -> Trained[CTRModel]:
    """The model that pretraining returns by default."""
    return pretrain(memorized_task(), SETTINGS)


def _harm(name: str) -> Harm:
    return Harm(field=name, train=0.1, train_error=0.001, valid=0.01, with_auc=0.7)


def test_a_field_that_memorizes_is_left_out(kept: Trained[Any], dropped: Trained[Any]) -> None:
    (harm,) = dropped.harms
    assert (harm.field, harm.left_out) == ("time", True)
    assert harm.train > max(0.02, 4 * harm.valid), "it helps on rows seen in training only"
    assert harm.with_auc == pytest.approx(max(epoch.kept_auc for epoch in kept.history))
    assert harm.without_auc == pytest.approx(max(epoch.kept_auc for epoch in dropped.history))
    assert dropped.model.needs == ("tags", "user", "kind")
    assert dropped.model.layout.widths == (4, 4, 0, 4)
    assert dropped.model.linear.widths == (1, 1, 0, 1)
    assert (harm.first_order, harm.first_order_auc is None) == (False, False), "first-order weights of chance: tried"
    test = split(4_000, 3)
    assert evaluate(dropped.model, test).auc > evaluate(kept.model, test).auc + 0.01
    assert dropped.seconds > sum(epoch.seconds for epoch in dropped.history), "both trainings count"
    assert "Field 'time' was left out" in repr(dropped)


@pytest.mark.parametrize("stayed", [True, False])
def test_first_order_weights_have_the_rate_of_dense_layers_where_those_of_a_harmful_field_stayed(
    stayed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    task, plain = memorized_task(), Optimizer.step
    seen: list[list[float]] = []
    start = without(task.new_model(), ["time"], ["time"] if stayed else [])
    task = task.starting_from(start)
    assert task.left_out == {2}

    def step(self: Optimizer) -> None:
        if not seen:
            rates = {id(w): float(group["lr"]) for group in self._adam.param_groups for w in group["params"]}
            seen.append([rates[id(weight)] for weight in self._dense])
        plain(self)

    monkeypatch.setattr(Optimizer, "step", step)
    retrain(task, start, Retrain(batch=512, decay=Decay(rate=1, epochs=1), distil=0))
    names = [name for name, _ in start.named_parameters()]
    rates = dict(zip(names, seen[0], strict=True))
    dense, tables, first = (
        {rate for name, rate in rates.items() if name.startswith(part)} for part in ("head", "embedding", "first_order")
    )
    assert len(dense) == len(tables) == len(first) == 1
    assert tables.pop() == pytest.approx(4 * min(dense))
    assert first.pop() == pytest.approx((1 if stayed else 4) * min(dense))


def test_both_tiers_of_a_column_that_memorizes_are_left_out_together() -> None:
    whole = memorized_task()
    first, rest = SCHEMA.fields[:2], SCHEMA.fields[3:]
    schema = Schema((*first, Field("time:frequent", 251), Field("time:rare", 751), *rest))

    def tiered(rows: Split) -> Split:
        time = rows.ids[:, 3]
        tiers = np.stack([np.where(time <= 250, time, 0), np.where(time > 250, time - 250, 0)], 1)
        return Split(np.concatenate([rows.ids[:, :3], tiers, rows.ids[:, 4:]], 1).astype(np.int32), rows.labels)

    task = Task(schema, tiered(whole.train_rows), tiered(whole.valid_rows), MODEL, 1, "cpu")
    found = pretrain(task, SETTINGS)
    assert [(harm.field, harm.left_out) for harm in found.harms] == [("time", True)], "one training settles both"
    assert found.model.layout.widths == (4, 4, 0, 0, 4)
    assert task.starting_from(found.model).left_out == {2, 3}


def test_a_useful_field_of_many_ids_and_unseen_values_is_no_suspect(kept: Trained[Any], dropped: Trained[Any]) -> None:
    task = memorized_task()
    shown = {harm.field: harm for harm in harmful.hidden_fields(kept.model, task.train_rows, task.valid_rows)}
    assert shown["user"].train > 2 * harmful.CLEAR
    assert shown["user"].train < harmful.RATIO * shown["user"].valid
    assert [harm.field for harm in harmful.suspects(kept.model, task.train_rows, task.valid_rows)] == ["time"]
    assert harmful.suspects(dropped.model, task.train_rows, task.valid_rows) == [], "nothing else after it"


def test_the_check_does_not_change_what_it_keeps(kept: Trained[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harmful, "GAIN", 1e9)
    found = pretrain(memorized_task(), SETTINGS)
    assert same(found.model.state_dict(), kept.model.state_dict())
    assert numbers(found) == numbers(kept)
    assert [(harm.field, harm.left_out) for harm in found.harms] == [("time", False)]
    assert "Field 'time' was kept" in repr(found)


def test_an_interrupted_training_without_the_field_resumes_with_the_same_bits(
    tmp_path: Path, dropped: Trained[Any]
) -> None:
    class StopSecond(Watcher):
        """Stops in the second training."""

        def begin(self, title: str, done: bool) -> None:
            assert (title, done) == ("pretrain without 'time', seed 0", False)
            self.epoch = Stop(2).epoch  # type: ignore[method-assign]

    with pytest.raises(KeyboardInterrupt):
        pretrain(memorized_task(), SETTINGS, tmp_path, StopSecond())
    assert (tmp_path / "without-1").is_dir()
    again = pretrain(memorized_task(), SETTINGS, tmp_path)
    assert numbers(again) == numbers(dropped)
    assert again.harms == dropped.harms
    assert same(again.model.state_dict(), dropped.model.state_dict())


def test_a_training_without_a_useful_field_ends_by_early_stopping_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model without the field may learn more slowly, and lose AUC in between."""
    monkeypatch.setattr(harmful, "suspects", lambda *_: [_harm("kind"), _harm("time")])
    trainings: list[list[Epoch]] = []
    watcher = Watcher()

    def noted(_stage: str, epoch: Epoch) -> None:
        if not epoch.epoch:
            trainings.append([])
        trainings[-1].append(epoch)

    monkeypatch.setattr(watcher, "epoch", noted)
    found = pretrain(
        memorized_task(), SETTINGS.model_copy(update={"learning_rate": 0.003, "epochs": 20}), watcher=watcher
    )
    full, without_it = trainings
    best = max(epoch.auc for epoch in full)
    assert any(
        len(full) <= count < len(without_it)
        and without_it[count - 1].auc < max(epoch.auc for epoch in without_it) <= best
        for count in range(1, len(without_it))
    ), "it goes on after an epoch that is not better, as long as the model with the field was trained"
    stop = early_stop(chosen(SETTINGS.patience))
    for history in trainings:
        assert [stop(history[:count]) for count in range(1, len(history))] == [False] * (len(history) - 1)
        assert stop(history)
    assert [(harm.field, harm.left_out) for harm in found.harms] == [("kind", False)], "an innocent suspect is the last"


def test_hiding_a_field_of_several_values_leaves_one_unknown_value() -> None:
    rows = split(50, 1)
    hidden = harmful.hide(rows, SCHEMA, SCHEMA.names[:1])
    assert set(hidden.ids[:, 0]) == {0}
    assert set(hidden.ids[:, 1]) == {PADDING}
    assert np.array_equal(hidden.ids[:, 2:], rows.ids[:, 2:])
    assert rows.ids[:, 0].all(), "the rows stay as they are"


def test_rows_of_one_label_suspect_nothing(kept: Trained[Any]) -> None:
    rows = split(100, 1)
    constant = Split(rows.ids, np.zeros_like(rows.labels))
    assert harmful.suspects(kept.model, rows, constant) == []


def test_several_harmful_fields_go_one_at_a_time_and_the_last_field_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harmful, "GAIN", -1e9)
    monkeypatch.setattr(harmful, "suspects", lambda model, *_: [_harm(name) for name in model.needs])
    monkeypatch.setattr(harmful, "TRAININGS", 9)
    found = pretrain(memorized_task(), SETTINGS.model_copy(update={"epochs": 1, "batch": 1024}))
    assert [harm.field for harm in found.harms] == ["tags", "user", "time"]
    assert found.model.layout.widths == (0, 0, 0, 4)
    assert found.model.needs == SCHEMA.names, "first-order weights that are better stay"
    task = memorized_task().starting_from(found.model)
    assert task.left_out == {0, 1, 2}
    assert (task.layout, task.linear) == (found.model.layout, found.model.linear)
    assert "keeps only its first-order weights" in repr(found)


def test_a_task_that_starts_without_a_field_builds_models_without_it(dropped: Trained[Any]) -> None:
    task = memorized_task().starting_from(dropped.model)
    assert task.left_out == {2}
    assert task.layout == dropped.model.layout
    assert task.linear == dropped.model.linear
    assert task.new_model().needs == dropped.model.needs
    assert task.bound(Budget.percent(10)).amount == pytest.approx(0.1 * MODEL.layout(SCHEMA).params, abs=1)
    assert task.bound(Budget.percent(90)).amount == dropped.model.layout.params, "all that is left"
    trained = retrain(task, dropped.model, Retrain(batch=512, epochs=1))
    assert trained.model.needs == dropped.model.needs


def test_a_factorys_model_keeps_the_field_and_says_so(planted: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    notes: list[str] = []
    watcher = Watcher()
    monkeypatch.setattr(watcher, "note", notes.append)
    monkeypatch.setattr(harmful, "suspects", lambda *_: [_harm("user")])
    task = Task.of(planted, deep, device="cpu")
    found = pretrain(task, Pretrain(batch=512, epochs=1), watcher=watcher)
    assert found.harms == [_harm("user")]
    assert "user" in found.model.needs
    assert len(notes) == 1
    assert "Field 'user' may be harmful" in notes[0]


def test_a_wrong_setting_is_one_line() -> None:
    _, problems = validate(Pretrain, {"harmful": "yes"}, "pretrain")
    assert len(problems) == 1
    assert "drop" in problems[0]
    assert "keep" in problems[0]
