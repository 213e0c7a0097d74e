"""The best of several searches by validation AUC."""

import json
from pathlib import Path

import pytest
import torch

from fieldwise.core.budget import Budget
from fieldwise.core.errors import SettingsError
from fieldwise.core.records import Epoch, SearchSummary
from fieldwise.core.settings import Values
from fieldwise.core.watcher import Watcher
from fieldwise.pipeline import stages as pipeline
from fieldwise.pipeline.settings import RunSettings
from fieldwise.reports.run.markdown import report
from fieldwise.searches.magnitude import Magnitude
from fieldwise.searches.race import Race
from fieldwise.searches.random import Random
from fieldwise.searches.search import search
from fieldwise.searches.uniform import Uniform
from fieldwise.train.evaluate import evaluate
from fieldwise.train.retraining import Retrain, retrain
from fieldwise.train.task import Task

TRIAL = Retrain(batch=256, epochs=2, learning_rate=0.02)
BUDGET = Budget.columns(7)


def test_the_result_that_is_best_after_retraining_wins_and_is_given_as_its_search_left_it(start: Task) -> None:
    single = {"random": search(start, Random(), BUDGET), "uniform": search(start, Uniform(), BUDGET)}
    reached = {name: evaluate(retrain(start, r.model, TRIAL).model, start.valid).auc for name, r in single.items()}
    best = max(reached, key=lambda name: reached[name])
    assert len(set(reached.values())) == 2
    for order in (("random", "uniform"), ("uniform", "random")):
        won = search(start, Race(entrants={name: {} for name in order}, retrain=TRIAL), BUDGET)
        assert won.mask == single[best].mask
        assert won.summary == single[best].summary.model_copy(update={"winner": best})
        weights, theirs = won.model.state_dict(), single[best].model.state_dict()
        assert all(torch.equal(weights[key], theirs[key]) for key in weights)
        assert won.seconds > 0


def test_entrants_take_settings(start: Task) -> None:
    race = Race(entrants={"magnitude": {"form": "rms"}}, retrain=TRIAL)
    assert search(start, race, BUDGET).mask == search(start, Magnitude(form="rms"), BUDGET).mask


class Cut(Watcher):
    """Raises in the second retraining, like a power cut."""

    def __init__(self) -> None:
        self.begun = 0

    def epoch(self, stage: str, epoch: Epoch) -> None:
        self.begun += stage == "retrain" and epoch.epoch == 0
        if self.begun == 2 and epoch.epoch == 1:
            raise KeyboardInterrupt


def test_an_interrupted_race_resumes(start: Task, tmp_path: Path) -> None:
    race = Race(entrants={"random": {}, "uniform": {}}, retrain=TRIAL)
    whole = search(start, race, BUDGET)
    with pytest.raises(KeyboardInterrupt):
        search(start, race, BUDGET, tmp_path, Cut())
    assert search(start, race, BUDGET, tmp_path).mask == whole.mask


def test_a_run_records_and_reports_who_won(tmp_path: Path) -> None:
    few = {"batch": 256, "epochs": 1}
    entrants: Values = {"random": {}, "uniform": {}}
    tables: Values = {"run": {"budgets": ["7 columns"], "device": "cpu"}, "data": {"name": "planted", "rows": 2000},
                      "model": {"width": 4}, "pretrain": few, "retrain": few,
                      "search": {"name": "race", "entrants": entrants}}  # fmt: skip
    (record,) = pipeline.run(RunSettings.parse(tables), tmp_path / "run")
    winner = record.summary.winner
    assert winner in entrants
    (stored,) = (tmp_path / "run").rglob("search/*/record.json")
    summary = json.loads(stored.read_text(encoding="utf-8"))["summary"]
    assert summary["winner"] == winner
    assert f"| 7 columns | 0 | {winner} |" in report([record])
    del summary["winner"]  # as in records of earlier versions
    assert SearchSummary.model_validate(summary).winner is None
    without = record.model_copy(update={"summary": SearchSummary.model_validate(summary)})
    assert "winner" not in report([without])


@pytest.mark.parametrize(
    ("entrants", "message"),
    [
        ({"hamm": {}}, "unknown 'hamm'. Did you mean 'ham'"),
        ({"race": {}}, "a race cannot enter itself"),
        ({"ham": {"epoks": 2}}, r"unknown 'epoks'. Did you mean 'epochs'\?"),
        ({}, "at least 1 item"),
    ],
)
def test_entrants_that_cannot_run_are_refused(entrants: dict[str, dict[str, int]], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        RunSettings.parse({"search": {"name": "race", "entrants": entrants}})


def test_a_preset_and_the_retraining_reach_the_entrants() -> None:
    paper: Values = {"preset": "paper", "search": {"name": "race"}, "retrain": {"distil": 0.25}}
    race = RunSettings.parse(paper).search
    assert isinstance(race, Race)
    assert list(race.entrants) == ["rounds", "ham", "uniform"]
    assert race.entrants["ham"]["patience"] == 3  # the paper's; the library's is 1
    assert race.retrain == Retrain(distil=0.25, batch=2048, patience=2, schedule="constant", l2=0, average=0)
    paper["search"] = {"name": "race", "entrants": {"pep": {"speed": 5.0}}, "retrain": {"distil": 0.75}}
    race = RunSettings.parse(paper).search
    assert isinstance(race, Race)
    assert {name: (values["speed"], values["threshold"]) for name, values in race.entrants.items()} == {
        "pep": (5.0, -15.0)
    }
    assert race.retrain.distil == 0.75
    assert RunSettings.parse({"search": {"name": "race"}}).search == Race()
