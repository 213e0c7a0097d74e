"""A diverging training ends with one line and its last good checkpoint, for every model and search."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from fieldwise.cli import main
from fieldwise.core.budget import Budget
from fieldwise.core.errors import TrainingError
from fieldwise.core.records import Epoch
from fieldwise.core.registry import resolve
from fieldwise.data.store import Dataset, Split
from fieldwise.gates.ham import HardGate
from fieldwise.models import MODELS
from fieldwise.models.model import HeadModel, Model
from fieldwise.searches import HAM, SEARCHES
from fieldwise.searches.search import Restarting, Search, search
from fieldwise.tables.optimizer import Optimizer
from fieldwise.train import checkpoint
from fieldwise.train.decay import Decay
from fieldwise.train.diverged import WORST, Diverged
from fieldwise.train.evaluate import evaluate
from fieldwise.train.pretraining import Pretrain, pretrain
from fieldwise.train.retraining import Retrain, retrain
from fieldwise.train.task import Task

TRAINING = ("autodim", "ham", "ham-p", "optembed", "pep", "rounds", "sam", "sam-gs", "sam-sigmoid")
"""The searches that train; a race trains its entrants."""
RATES = (1e6, 1e30)
SMALL = {"epochs": 2, "batch": 32}
ONE_LINE = r"^[^\n]* To fix it, lower the learning rate \(now [^\n]*$"


def few(planted: Dataset, model: str, rows: int = 300) -> Task:
    """A task with few rows and an untrained starting model; with 65 rows, the last batch of 32 has one row."""
    settings = resolve("model", MODELS, model)(width=4)
    assert isinstance(settings, Model)
    some = Split(planted.train.ids[:rows], planted.train.labels[:rows])
    task = replace(Task.of(planted, settings, seed=3, device="cpu"), train_rows=some, valid_rows=some)
    return task.starting_from(task.new_model())


def fast(name: str, rate: float) -> Search:
    """A search of two epochs with a given learning rate."""
    sizes: dict[str, dict[str, Any]] = {
        "autodim": {"candidates": (1, 2, 4)},
        "rounds": {"rounds": 3},
        "pep": {"speed": 50, "threshold": -5},
    }
    found = resolve("search", SEARCHES, name)(**SMALL, learning_rate=rate, **sizes.get(name, {}))
    assert isinstance(found, Search)
    return found


def finite(folder: Path) -> bool:
    """Whether the folder's last checkpoint exists and contains only finite numbers."""
    tensors, info = checkpoint.load(folder, torch.device("cpu")) or ({}, {})
    json.dumps(info, allow_nan=False)
    return bool(tensors) and all(torch.isfinite(t).all() for t in tensors.values())


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("rows", [100, 65])
def test_pretraining_and_retraining(planted: Dataset, tmp_path: Path, model: str, rows: int, rate: float) -> None:
    task = few(planted, model, rows)
    with pytest.raises(TrainingError, match=ONE_LINE):
        pretrain(task, Pretrain(**SMALL, learning_rate=rate), tmp_path / "a")
    assert finite(tmp_path / "a")
    with pytest.raises(TrainingError, match=r"checkpoint is kept\. To fix it"):
        retrain(task, task.new_model(), Retrain(**SMALL, learning_rate=rate, distil=0), tmp_path / "b")
    assert finite(tmp_path / "b")


@pytest.mark.parametrize(("model", "rate"), [*((model, RATES[0]) for model in MODELS), ("fm", RATES[1])])
@pytest.mark.parametrize("name", TRAINING)
def test_every_search_that_trains(planted: Dataset, name: str, model: str, rate: float) -> None:
    with pytest.raises(TrainingError, match=ONE_LINE):
        search(few(planted, model), fast(name, rate), Budget.columns(7))
    if name == "rounds":
        race = resolve("search", SEARCHES, "race")(entrants={"rounds": fast("rounds", rate).values()})
        with pytest.raises(TrainingError, match=ONE_LINE):
            search(few(planted, model), race, Budget.columns(7))


@pytest.mark.parametrize("name", SEARCHES)
def test_no_search_starts_from_a_model_that_has_diverged(planted: Dataset, name: str) -> None:
    task = few(planted, "fm")
    broken = task.new_model()
    with torch.no_grad():
        broken.embedding.table(0).fill_(torch.nan)
    settings = resolve("search", SEARCHES, name)
    found = settings(start="pretrained") if issubclass(settings, Restarting) else settings()
    assert isinstance(found, Search)
    with pytest.raises(TrainingError, match=r"not finite|must be finite"):
        search(task.starting_from(broken), found, Budget.columns(12))


def test_a_search_keeps_its_last_good_checkpoint(planted: Dataset, tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="checkpoint is kept"):
        search(few(planted, "fm"), fast("ham", 1e30), Budget.columns(7), tmp_path)
    assert finite(tmp_path / "stage-0")


def test_a_gate_that_is_no_number_is_refused_though_the_weights_are_sound(
    planted: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(HardGate, "step", lambda gate, grad: gate.alpha.fill_(torch.nan))
    with pytest.raises(TrainingError, match=r"'beside\.alpha' of search holds nan after epoch 1\. All numbers must be"):
        search(few(planted, "fm"), HAM(**SMALL), Budget.columns(7))


def test_a_step_of_a_last_half_epoch_is_counted_from_the_first_one(
    planted: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = Optimizer.at

    def broken(self: Optimizer, step: int) -> None:
        plain(self, step)
        if step == 5:
            with torch.no_grad():
                for group in self._adam.param_groups:
                    for weights in group["params"]:
                        weights.fill_(torch.nan)

    monkeypatch.setattr(Optimizer, "at", broken)
    task = few(planted, "dcnv2", 100)  # four steps per epoch
    with pytest.raises(TrainingError, match=r"The loss of retrain became nan at step 6 \(epoch 2\)"):
        retrain(task, task.new_model(), Retrain(batch=32, distil=0, decay=Decay(rate=1, epochs=1.5)))


def test_one_training_row_is_refused(planted: Dataset) -> None:
    with pytest.raises(TrainingError, match=r"pretrain got 1 training rows\. A step needs at least 2"):
        pretrain(replace(few(planted, "fm"), train_rows=few(planted, "fm", 1).train_rows), Pretrain(**SMALL))


def test_an_evaluation_refuses_predictions_that_are_not_finite(planted: Dataset) -> None:
    task = few(planted, "fm")
    model = task.new_model()
    with torch.no_grad():
        assert isinstance(model, HeadModel)
        assert model.first_order is not None
        model.first_order.table(5)[int(task.valid_rows.ids[7, 5])] = torch.inf
    with pytest.raises(TrainingError, match=r"^\d+ of 300 predictions are not finite, the first is inf\."):
        evaluate(model, task.valid)


def history(*losses: float) -> list[Epoch]:
    return [Epoch(epoch=i, loss=0.7, auc=0.5, log_loss=loss, seconds=0.1) for i, loss in enumerate(losses)]


def test_bad_epochs_are_no_divergence() -> None:
    check = Diverged("pretrain", 1e-3, None).check_epochs
    check(history(0.7, 5.0))
    check(history(0.7, WORST))
    check(history(1e9))  # the loss before training does not count as divergence
    check(history(1e9, 1e8))  # it is decreasing
    with pytest.raises(TrainingError, match=r"log loss on validation rows is 2\.1e\+25 after epoch 2\. At most 104 is"):
        check(history(0.7, 0.6, 2.1e25))
    with pytest.raises(TrainingError, match="diverged"):
        check(history(1e9, 1e10))


def test_a_mask_of_a_model_s_own_may_hold_infinities(planted: Dataset) -> None:
    task = few(planted, "fm")
    model = task.new_model()
    model.register_buffer("own", torch.full((2,), -torch.inf))
    assert len(pretrain(task.starting_from(model), Pretrain(**SMALL)).history) > 1


@pytest.mark.parametrize(("model", "rate"), [("fm", "1e6"), ("dcnv2", "1e6"), ("fm", "1e30")])
def test_the_command_ends_with_one_line_and_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, model: str, rate: str
) -> None:
    what = ["--set", "data.rows=1000", "--model", model, "--search", "uniform", "--budget", "7 columns"]
    sets = ["--set", f"pretrain.learning_rate={rate}", "--set", "pretrain.batch=64", "--set", "model.width=4"]
    command = ["run", "--source", "planted", *what, *sets, "--out", str(tmp_path / "run"), "--device", "cpu"]
    monkeypatch.setattr(sys, "argv", ["fieldwise", *command])
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("OMP_WAIT_POLICY", "PASSIVE")
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    error = capsys.readouterr().err
    assert "Traceback" not in error
    assert "lower the learning rate" in " ".join(error.split())
    assert finite(tmp_path / "run/seed-0/pretrain/checkpoint")
    assert not (tmp_path / "run/seed-0/pretrain/record.json").exists()
