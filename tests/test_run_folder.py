"""The folders of a run: stages, what they depend on, and the settings that the folder keeps."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import tomli_w

from fieldwise.core.budget import Budget
from fieldwise.core.errors import RunError
from fieldwise.core.records import StageRecord
from fieldwise.core.watcher import Watcher
from fieldwise.data.store import Dataset
from fieldwise.pipeline.folder import Job, agree, begin, end, need, read, read_record, with_earlier
from fieldwise.pipeline.settings import RunSettings

DATA = cast(Dataset, SimpleNamespace(fingerprint="abc"))
RECORD = StageRecord(history=[], seconds=1.0, peak_memory=2)


class Titles(Watcher):
    """Records which stages begin."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, bool]] = []

    def begin(self, title: str, done: bool) -> None:
        self.seen.append((title, done))


def settings(**run: Any) -> RunSettings:
    return RunSettings.parse({"run": run})


def job_in(out: Path, shared: Path | None = None, **run: Any) -> Job:
    return Job(settings(**run), out, Titles(), shared)


def test_every_seed_and_budget_has_its_folders_and_what_they_depend_on(tmp_path: Path) -> None:
    job = job_in(tmp_path, seeds=[0, 1], budgets=["8", "25%"])
    found = {folder.relative_to(tmp_path).as_posix(): values for folder, values in job.stages(DATA)}
    assert [name for name in found if name.startswith("seed-1")] == [
        "seed-1/pretrain", "seed-1/search/8-columns", "seed-1/search/25pct-parameters", "seed-1/retrain/8-columns",
        "seed-1/retrain/25pct-parameters",
    ]  # fmt: skip
    assert len(found) == 10
    base = {"dataset", "seed", "model", "pretrain"}
    assert set(found["seed-0/pretrain"]) == base
    assert set(found["seed-0/search/8-columns"]) == base | {"search", "budget"}
    assert set(found["seed-0/retrain/8-columns"]) == base | {"search", "budget", "retrain"}
    assert found["seed-1/retrain/25pct-parameters"]["budget"] == "25% parameters"


def test_shared_pretrained_models_are_elsewhere(tmp_path: Path) -> None:
    job = job_in(tmp_path / "method", shared=tmp_path / "model")
    assert job.stage("pretrain", DATA, 3, Budget.columns(8))[0] == tmp_path / "model" / "seed-3" / "pretrain"
    assert job.stage("search", DATA, 3, Budget.columns(8))[0] == tmp_path / "method/seed-3/search/8-columns"


def test_a_stage_has_work_until_it_has_a_record(tmp_path: Path) -> None:
    job, folder = job_in(tmp_path), tmp_path / "seed-0" / "pretrain"
    with pytest.raises(RunError, match=r"the pretraining is not complete. Call `pretrain` with this folder first"):
        need(folder, "the pretraining", "pretrain")
    assert begin(job.watcher, folder, {"seed": 0}, "pretrain")
    assert json.loads((folder / "stage.json").read_text()) == {"seed": 0}
    (folder / "checkpoint").mkdir()
    end(folder, RECORD)
    assert not (folder / "checkpoint").exists()
    (folder / "checkpoint").mkdir()
    assert not begin(job.watcher, folder, {"seed": 0}, "pretrain"), "complete"
    assert not (folder / "checkpoint").exists(), "left by a process that was killed after its record"
    need(folder, "the pretraining", "pretrain")
    assert read_record(StageRecord, folder / "record.json") == RECORD
    assert cast(Titles, job.watcher).seen == [("pretrain", False), ("pretrain", True)]


def test_settings_that_came_later_have_the_values_of_before(tmp_path: Path) -> None:
    (tmp_path / "stage.json").write_text('{"search": {"name": "ham"}, "retrain": {"epochs": 3}, "seed": 0}')
    old = {"search": {"name": "ham", "start": "searched"}, "retrain": {"epochs": 3, "average": 0}, "seed": 0}
    agree(tmp_path, old)
    with pytest.raises(
        RunError, match=r"settings: retrain.average \(0.0 -> 'auto'\); search.start \('searched' -> 'pre"
    ):
        agree(
            tmp_path,
            {"search": {"name": "ham", "start": "pretrained"}, "retrain": {"epochs": 3, "average": "auto"}, "seed": 0},
        )
    (tmp_path / "stage.json").write_text('{"search": {"name": "sseds"}, "seed": 0}')
    agree(tmp_path, {"search": {"name": "sseds"}, "seed": 0})


def test_other_settings_and_damaged_files_are_named(tmp_path: Path) -> None:
    (tmp_path / "stage.json").write_text('{"model": {"width": 4}, "seed": 0}')
    agree(tmp_path, {"model": {"width": 4}, "seed": 0})
    with pytest.raises(
        RunError, match=r"made with other settings: model.width \(4 -> 5\); seed \(0 -> 1\)\. Use those"
    ):
        agree(tmp_path, {"model": {"width": 5}, "seed": 1})
    (tmp_path / "record.json").write_text('{"seconds": 1}')
    with pytest.raises(RunError, match=r"record.json' is damaged \(history: Field required\)"):
        read_record(StageRecord, tmp_path / "record.json")
    (tmp_path / "record.json").write_text("{")
    with pytest.raises(RunError, match=r"record.json' cannot be read"):
        read(tmp_path / "record.json")


@pytest.mark.parametrize(
    ("ran", "budgets", "seeds"),
    [
        ((), ["6 columns"], (1,)),
        (("seed-0/pretrain",), ["6 columns"], (0, 1)),
        (("seed-0/pretrain", "seed-0/search/8-columns"), ["8 columns", "25% parameters", "6 columns"], (0, 1)),
    ],
    ids=["nothing ran", "pretrained", "searched"],
)
def test_the_folder_keeps_seeds_and_budgets_of_earlier_commands(
    ran: tuple[str, ...], budgets: list[str], seeds: tuple[int, ...], tmp_path: Path
) -> None:
    """Budgets count once a search began: `pretrain` has no --budget, so the user chose none of those it stores."""
    (tmp_path / "settings.toml").write_text(tomli_w.dumps(settings(seeds=[0], budgets=["8", "25%"]).values()))
    for folder in ran:
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "stage.json").write_text("{}")
    kept = with_earlier(settings(seeds=[1], budgets=["6"]), tmp_path)
    assert ([str(budget) for budget in kept.run.budgets], kept.run.seeds) == (budgets, seeds)
    again = with_earlier(settings(seeds=[0], budgets=["25%"]), tmp_path).run
    assert len(again.budgets) == (2 if len(ran) == 2 else 1), "a budget that is known is not repeated"


@pytest.mark.parametrize("text", ["", "[run", '[run]\nbudgets = ["lots"]', "run = 3"])
def test_earlier_settings_that_are_damaged_are_replaced(text: str, tmp_path: Path) -> None:
    (tmp_path / "seed-0" / "search" / "8-columns").mkdir(parents=True)
    (tmp_path / "seed-0" / "search" / "8-columns" / "stage.json").write_text("{}")
    (tmp_path / "settings.toml").write_text(text)
    given = settings(seeds=[4], budgets=["6"])
    assert with_earlier(given, tmp_path) == given
