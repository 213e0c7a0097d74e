"""Runs from files to files: complete, resumed after a kill, refused if made with other settings."""

import json
import os
import shutil
import signal
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from fieldwise.cli.options import settings_of
from fieldwise.comparison.settings import CompareSettings
from fieldwise.core.errors import FieldwiseError, RunError, SettingsError
from fieldwise.core.mask import Mask
from fieldwise.core.settings import read_toml
from fieldwise.data.batches import Batches
from fieldwise.data.store import Dataset, Split
from fieldwise.exports.folder import load, load_trained
from fieldwise.models.model import CTRModel, Model
from fieldwise.pipeline import seed_run
from fieldwise.pipeline import stages as pipeline
from fieldwise.pipeline.report import report
from fieldwise.pipeline.settings import RunSettings
from fieldwise.reports.run.view import open_run
from fieldwise.train.evaluate import evaluate, predictions
from tests.command_line import START, cli

SMALL: dict[str, Any] = {
    "run": {"budgets": ["8 columns", "40% parameters"], "seeds": [0, 1], "device": "cpu"},
    "data": {"name": "planted", "rows": 4000},
    "model": {"name": "dcnv2", "width": 4},
    "pretrain": {"batch": 512, "epochs": 3, "learning_rate": 0.02},
    "search": {"name": "ham", "batch": 512, "epochs": 3},
    "retrain": {"batch": 512, "epochs": 3},
}


def settings(**changes: dict[str, Any]) -> RunSettings:
    tables = {name: {**values, **changes.get(name, {})} for name, values in SMALL.items()}
    return RunSettings.parse(tables)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "small"
    pipeline.run(settings(), out)
    return out


def results(out: Path) -> list[dict[str, Any]]:
    """The records of a run, without times and memory."""
    records = json.loads((out / "record.json").read_text())
    return [{k: v for k, v in r.items() if k not in ("seconds", "peak_memory")} for r in records]


def test_a_run_folder_is_readable_without_the_library(finished: Path) -> None:
    names = sorted(str(p.relative_to(finished)) for p in finished.rglob("*") if p.is_file())
    home = "seed-1/{}/8-columns/{}"
    for expected in (
        "settings.toml", "record.json", "report-planted.md", "report-planted.html", "dataset/dataset.json",
        "seed-1/pretrain/model.safetensors",
        home.format("search", "mask.json"), home.format("search", "trace-0.safetensors"),
        home.format("retrain", "record.json"), home.format("compact", "model.safetensors"),
        home.format("compact", "model.json"),
    ):  # fmt: skip
        assert expected in names
    assert not [name for name in names if "checkpoint" in name or "partial" in name]
    assert not [name for name in names if name.endswith((".pkl", ".pt", ".pickle"))]


def test_records_say_what_the_folder_holds(finished: Path) -> None:
    data = Dataset.open(finished / "dataset")
    records = json.loads((finished / "record.json").read_text())
    assert [(r["seed"], r["budget"]) for r in records] == [
        (0, "8 columns"), (0, "40% parameters"), (1, "8 columns"), (1, "40% parameters")
    ]  # fmt: skip
    first = records[0]
    home = finished / "seed-0"
    compact = load(home / "compact" / "8-columns").model
    mask = Mask.from_json(json.loads((home / "search" / "8-columns" / "mask.json").read_text()))
    assert first["compact_test"] == evaluate(compact, data.test).to_json()
    assert first["full_test"] == evaluate(load(home / "pretrain").model, data.test).to_json()
    assert first["widths_after"] == list(mask.widths) == list(compact.layout.widths)
    assert first["compact_size"]["embedding"] == mask.params
    assert first["source"] == "planted"
    assert first["summary"]["evaluated_auc"] == pytest.approx(first["summary"]["selected_auc"], abs=1e-6)
    assert set(first["seconds"]) == {"pretrain", "search", "retrain"}
    trace = load_file(home / "search" / "8-columns" / "trace-0.safetensors")
    assert len(trace["live"]) == first["summary"]["steps"]


def test_the_report_shows_every_field_and_budget(finished: Path) -> None:
    text = (finished / "report-planted.md").read_text()
    for word in ("user", "noise_c", "8 columns", "40% parameters", "± ", "test AUC", "re-activations"):
        assert word in text


def test_settings_toml_gives_the_same_settings_back(finished: Path) -> None:
    fitted = settings().fitted(Dataset.open(finished / "dataset"))
    assert RunSettings.parse(read_toml(finished / "settings.toml")) == fitted


def test_the_same_run_elsewhere_gives_the_same_numbers(finished: Path, tmp_path: Path) -> None:
    pipeline.run(settings(run={"seeds": [1]}), tmp_path / "again")
    again = results(tmp_path / "again")
    for record in again:
        record["settings"]["run"]["seeds"] = [0, 1]
    assert again == results(finished)[2:]


def test_the_stages_one_by_one_are_the_run(finished: Path, tmp_path: Path) -> None:
    pipeline.prepare(settings(), tmp_path / "data")
    chosen = settings(run={"dataset": str(tmp_path / "data"), "seeds": [0]})
    with pytest.raises(RunError, match="the pretraining of seed 0 is not complete"):
        pipeline.search(chosen, tmp_path / "out")
    pipeline.pretrain(chosen, tmp_path / "out")
    with pytest.raises(RunError, match="the search of 8 columns, seed 0 is not complete"):
        pipeline.retrain(chosen, tmp_path / "out")
    with pytest.raises(RunError, match="holds no complete search"):
        report(tmp_path / "out", "md")
    pipeline.search(chosen, tmp_path / "out")
    pipeline.retrain(chosen, tmp_path / "out")
    assert [path.name for path in report(tmp_path / "out").paths] == ["report-planted.md", "report-planted.html"]
    assert len(open_run(tmp_path / "out").records) == 2
    masks = [out / "seed-0" / "search" / "8-columns" / "mask.json" for out in (finished, tmp_path / "out")]
    assert masks[0].read_text() == masks[1].read_text()


def test_a_prepared_dataset_needs_no_raw_rows(movielens_zip: Path, tmp_path: Path) -> None:
    pipeline.prepare(settings_of(None, None, None, source="movielens-1m", raw=movielens_zip), tmp_path / "data")
    shipped, out = Path(__file__).parent.parent / "settings" / "movielens-1m.toml", tmp_path / "out"
    chosen = settings_of(shipped, out, ["pretrain.epochs=1"], dataset=tmp_path / "data", device="cpu")
    pipeline.pretrain(chosen, out)
    assert (out / "seed-0" / "pretrain" / "record.json").exists()
    assert not (out / "dataset").exists()
    assert settings_of(None, out, None) == chosen, "the run folder remembers the dataset, and no other source"
    with pytest.raises(SettingsError, match="is already prepared, and \\[data\\] names nothing else"):
        pipeline.prepare(chosen, tmp_path / "again")


def test_a_further_budget_uses_the_pretraining_that_is_there(finished: Path, tmp_path: Path) -> None:
    out = shutil.copytree(finished, tmp_path / "out")
    before = (out / "seed-0" / "pretrain" / "model.safetensors").stat().st_mtime_ns
    pipeline.search(settings(run={"budgets": ["5"], "seeds": [0]}), out)
    assert (out / "seed-0" / "pretrain" / "model.safetensors").stat().st_mtime_ns == before
    assert (out / "seed-0" / "search" / "5-columns" / "mask.json").exists()
    assert not (out / "seed-1" / "search" / "5-columns").exists()
    kept = RunSettings.parse(read_toml(out / "settings.toml")).run
    assert [str(budget) for budget in kept.budgets] == ["8 columns", "40% parameters", "5 columns"]
    assert kept.seeds == (0, 1)


def test_the_full_model_is_loaded_and_evaluated_once_per_seed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded, evaluated = Counter[str](), 0

    def counted_load(folder: Path, own: type[Model]) -> CTRModel:
        loaded[folder.relative_to(tmp_path / "out").parts[1]] += 1
        return load_trained(folder, own)

    def counted(function: Callable[[CTRModel, Batches | Split], Any]) -> Callable[[CTRModel, Batches | Split], Any]:
        def call(model: CTRModel, rows: Batches | Split) -> Any:
            nonlocal evaluated
            evaluated += 1
            return function(model, rows)

        return call

    monkeypatch.setattr(seed_run, "load_trained", counted_load)
    for function in (evaluate, predictions):
        monkeypatch.setattr(seed_run, function.__name__, counted(function))
    few = {"epochs": 1}
    pipeline.run(settings(run={"seeds": [0]}, pretrain=few, search=few, retrain=few), tmp_path / "out")
    assert loaded == {"pretrain": 1, "search": 2}
    stores = 3  # test of the full model in float16, int8 and int4
    assert evaluated == 2 + stores + 2 * 2, "valid and test of the full model, and of each of two compact ones"


def test_no_search_reads_the_test_rows(finished: Path, tmp_path: Path) -> None:
    pipeline.prepare(settings(), tmp_path / "data")
    for path in (tmp_path / "data").glob("test.*"):
        path.unlink()
    chosen = settings(run={"dataset": str(tmp_path / "data"), "seeds": [0], "budgets": ["8"]})
    pipeline.pretrain(chosen, tmp_path / "out")
    pipeline.search(chosen, tmp_path / "out")
    masks = [out / "seed-0" / "search" / "8-columns" / "mask.json" for out in (finished, tmp_path / "out")]
    assert masks[0].read_text() == masks[1].read_text()


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"pretrain": {"learning_rate": 0.5}}, r"pretrain.learning_rate \(0.02 -> 0.5\)"),
        ({"search": {"epochs": 7}}, r"search.epochs \(3 -> 7\)"),
        ({"retrain": {"drop_first_order": True}}, r"retrain.drop_first_order \(False -> True\)"),
        ({"model": {"width": 5}}, r"model.width \(4 -> 5\)"),
        ({"data": {"rows": 5000}}, r"source.rows \(4000 -> 5000\)"),
    ],
)
def test_a_folder_made_with_other_settings_is_refused_before_any_work(
    finished: Path, changes: dict[str, Any], says: str
) -> None:
    before = (finished / "settings.toml").read_text()
    with pytest.raises(FieldwiseError, match=says):
        pipeline.run(settings(**changes), finished)
    assert (finished / "settings.toml").read_text() == before


def test_a_damaged_record_is_named(tmp_path: Path) -> None:
    chosen = settings(run={"seeds": [0], "budgets": ["8"]})
    pipeline.run(chosen, tmp_path / "out")
    (tmp_path / "out" / "seed-0" / "search" / "8-columns" / "stage.json").write_text("{")
    with pytest.raises(RunError, match=r"stage.json' cannot be read"):
        pipeline.run(chosen, tmp_path / "out")
    with pytest.raises(RunError, match="is not a run folder"):
        report(tmp_path / "absent")


STAGES = ["pretrain, seed 0, epoch 2", "search 8 columns, seed 0, epoch 1", "retrain 8 columns, seed 0, epoch 1"]


@pytest.mark.parametrize("moment", ["count", *STAGES])
def test_kill_9_and_the_same_command_again_give_the_same_numbers(moment: str, finished: Path, tmp_path: Path) -> None:
    chosen = ["--seed", "0", "--budget", "8 columns"]
    words = ["run", str(finished / "settings.toml"), "--out", str(tmp_path / "out"), *chosen]
    with subprocess.Popen([*START, *words], stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("prepare" if moment == "count" else moment):
                os.killpg(process.pid, signal.SIGKILL)
                break
    assert process.wait() == -signal.SIGKILL
    assert not (tmp_path / "out" / "record.json").exists()
    again = cli(*words)
    assert again.returncode == 0, again.stderr
    if moment in STAGES:
        assert f"{moment}:" not in again.stdout, "a complete epoch is not done again"
    (record,) = results(tmp_path / "out")
    expected = results(finished)[0]
    for got in (record, expected):
        del got["settings"]["run"]
    assert record == expected


@pytest.mark.gpu
def test_the_same_run_works_on_a_gpu(finished: Path, tmp_path: Path) -> None:
    chosen = settings(run={"dataset": str(finished / "dataset"), "device": "cuda"})
    records = pipeline.run(chosen, tmp_path / "out")
    assert torch.cuda.is_available()
    assert {record.device for record in records} == {"cuda"}
    for record, cpu in zip(records, results(finished), strict=True):
        assert record.full_valid.auc == pytest.approx(cpu["full_valid"]["auc"], abs=0.02)
        assert record.compact_size.columns <= 8 or record.budget != "8 columns"


@pytest.mark.parametrize(
    ("tables", "text"),
    [
        (
            {"search": {"name": "pep"}},
            r"\[search\] PEP does not work with \[run\] tables = 'sharded'. Choose elimination",
        ),
        ({"search": {"name": "race", "entrants": {"autodim": {}}}}, r"\[search\] AutoDim does not work"),
        ({"retrain": {"store": "int8"}}, r"stored as float32, got int8"),
        ({"model": {"name": "tests.processes.test_parity:build"}}, r"a factory's tables are the module's own"),
    ],
)
def test_what_sharded_tables_do_not_support(tables: dict[str, Any], text: str) -> None:
    with pytest.raises(SettingsError, match=text) as found:
        RunSettings.parse({"run": {"tables": "sharded"}, **tables})
    assert "\n" not in str(found.value)


def test_sharded_tables_of_a_comparison_and_of_a_budget_in_int8(planted: Dataset, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="each cell of a comparison uses one"):
        CompareSettings.parse({"run": {"tables": "sharded"}, "compare": {"methods": ["uniform"]}})
    run = {"tables": "sharded", "budgets": ["5 KB int8"], "dataset": planted.folder}
    with pytest.raises(SettingsError, match="stored as float32, got int8"):
        pipeline.run({"run": run}, tmp_path / "out")
