"""Runs over rows with a harmful field: budgets, records, reports, resume, comparison and prediction."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import fieldwise as fw
from fieldwise.core.mask import Mask
from fieldwise.core.watcher import Watcher
from fieldwise.data.frame import Frame
from fieldwise.data.prepare import prepare
from fieldwise.data.split import RandomSplit
from fieldwise.exports.info import ModelInfo
from tests.command_line import cli
from tests.memorized import columns
from tests.trainings import Stop

FEW = {"batch": 128, "learning_rate": 0.01, "epochs": 6, "patience": 2}
RAW = {name: values for name, values in columns(8_000, 2).items() if name != "other"}
FOUND = "Field 'time' was left out: it helps on rows seen in training (hiding it costs 0."
TIERS = {"time:frequent", "time:middle", "time:rare"}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> fw.Dataset:
    """Encoded rows whose `time` is harmful."""
    fields = {name: {"kind": "category"} for name in RAW if name != "label"}
    source = Frame(frame=pa.table(RAW), label="label", fields=fields, min_count=1)
    return prepare(source, tmp_path_factory.mktemp("harm") / "data", RandomSplit(shares=(0.4, 0.4, 0.2)))


def tables(data: fw.Dataset, **pretrain: Any) -> dict[str, Any]:
    """Settings of a quick run."""
    return {
        "run": {"dataset": str(data.folder), "device": "cpu", "budgets": ["8%", "90%"]},
        "model": {"name": "fm", "width": 4},
        "pretrain": {**FEW, **pretrain},
        "search": {"name": "ham", "epochs": 1, "batch": 512},
        "retrain": {"epochs": 1, "batch": 512},
    }


@pytest.fixture(scope="module")
def finished(data: fw.Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A complete run."""
    out = tmp_path_factory.mktemp("harm") / "run"
    fw.run(tables(data), out)
    return out


def test_the_record_has_the_evidence_and_the_model_lacks_the_field(finished: Path, data: fw.Dataset) -> None:
    stage = json.loads((finished / "seed-0/pretrain/record.json").read_text())
    (harm,) = stage["harms"]
    assert (harm["field"], harm["left_out"]) == ("time", True)
    assert harm["without_auc"] > harm["with_auc"] + 2 * harm["gain_error"]
    assert not TIERS & set(ModelInfo.read(finished / "seed-0/pretrain").needs)
    full = fw.models.FM(width=4).layout(data.schema)
    places = [data.schema.names.index(name) for name in sorted(TIERS)]
    for record in json.loads((finished / "record.json").read_text()):
        assert record["harms"] == stage["harms"]
        assert record["widths_before"] == list(full.widths)
        assert [record["widths_after"][place] for place in places] == [0, 0, 0]
        slug = fw.Budget.parse(record["budget"]).slug
        assert not TIERS & set(ModelInfo.read(finished / "seed-0/compact" / slug).needs)
        mask = Mask.from_json(json.loads((finished / "seed-0/search" / slug / "mask.json").read_text()))
        assert mask.full == full
    kept = {r["budget"]: r["compact_size"]["embedding"] for r in json.loads((finished / "record.json").read_text())}
    assert kept["8% parameters"] <= 0.08 * full.params < kept["8% parameters"] + 160, "of the model with all fields"
    assert kept["90% parameters"] == full.params - sum(data.schema.cardinalities[place] * 4 for place in places), (
        "everything else"
    )


def test_both_reports_and_the_terminal_say_it(finished: Path) -> None:
    assert FOUND in next(finished.glob("report-*.md")).read_text()
    page = next(finished.glob("report-*.html")).read_text()
    assert FOUND.replace("'", "\\u0027") in page or FOUND in page
    shown = cli("run", finished / "settings.toml", "--out", finished)
    assert FOUND in shown.stdout + shown.stderr


def test_predictions_need_no_value_of_the_field(finished: Path) -> None:
    predictor = fw.load(finished / "seed-0/compact/8pct-parameters")
    rows = pa.table({name: values[:50] for name, values in RAW.items() if name not in ("label", "time")})
    assert len(predictor.predict(rows)) == 50


def test_a_run_that_was_killed_in_the_second_training_resumes(data: fw.Dataset, finished: Path, tmp_path: Path) -> None:
    class Kill(Watcher):
        """Stops in the training without the field."""

        def begin(self, title: str, done: bool) -> None:
            if "without 'time'" in title:
                self.epoch = Stop(1).epoch  # type: ignore[method-assign]

    given = tables(data)
    given["run"]["budgets"] = ["8%"]
    with pytest.raises(KeyboardInterrupt):
        fw.run(given, tmp_path, Kill())
    assert (tmp_path / "seed-0/pretrain/checkpoint/without-1").is_dir()
    fw.run(given, tmp_path)
    both = [json.loads((out / "seed-0/pretrain/record.json").read_text()) for out in (tmp_path, finished)]
    assert both[0]["harms"] == both[1]["harms"]
    same = [(out / "seed-0/compact/8pct-parameters/model.safetensors").read_bytes() for out in (tmp_path, finished)]
    assert same[0] == same[1]
    assert not (tmp_path / "seed-0/pretrain/checkpoint").exists()


def test_a_comparison_shares_the_model_without_the_field(data: fw.Dataset, tmp_path: Path) -> None:
    given = tables(data)
    given["run"]["budgets"], given["compare"] = ["8%"], {"methods": ["uniform", "mde"]}
    del given["search"]
    found = fw.compare(given, tmp_path)
    assert {cell.record.harms[0].field for cell in found.cells if cell.record} == {"time"}
    for name in ("comparison.md", "report-*.html"):
        assert next(tmp_path.glob(name)).read_text().count(f", seed 0: {FOUND}") == 1


def test_keep_and_the_preset_paper_do_not_look(data: fw.Dataset) -> None:
    assert fw.RunSettings.of(tables(data)).pretrain.harmful == "drop"
    paper = fw.RunSettings.of({**tables(data), "preset": "paper"})
    assert paper.pretrain.harmful == "keep"
    task = fw.Task.of(data, fw.models.FM(width=4), device="cpu")
    assert fw.pretrain(task, fw.Pretrain(**FEW, harmful="keep")).model.needs == data.schema.names
