"""Batch size, patience and the output's bias follow from the rows, and are recorded as numbers."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fieldwise as fw
from fieldwise.comparison.settings import CompareSettings
from fieldwise.core.automatic import chosen
from fieldwise.core.errors import SettingsError
from fieldwise.core.registry import resolve
from fieldwise.core.settings import read_toml
from fieldwise.data.store import Dataset, Split
from fieldwise.models import MODELS
from fieldwise.models.model import CTRModel, HeadModel
from fieldwise.pipeline.settings import RunSettings
from fieldwise.searches.race import Race
from fieldwise.train.auto import batch_for, patience_for
from fieldwise.train.plan import Training
from fieldwise.train.task import Task


def bias_of(model: CTRModel) -> float:
    assert isinstance(model, HeadModel)
    bias = model.head.output_bias()
    assert bias is not None
    return float(bias.detach())


@pytest.mark.parametrize(
    ("rows", "clicks", "batch"),
    [
        (590_856, 459_000, 2048),  # MovieLens-1M: as before
        (36_672_493, 9_400_000, 2048),  # Criteo: as before
        (160_265, 80_000, 512),  # planted
        (42_744, 10_000, 128),  # the sample of Criteo
        (16_000, 4_000, 64),  # 20,000 rows
        (16_000, 64, 256),  # 20,000 rows with 80 clicks: one click per batch
        (16_000, 15_936, 256),  # the rarer label counts
        (16_000, 0, 2048),
        (2, 1, 64),
    ],
)
def test_a_batch_follows_from_rows_and_clicks(rows: int, clicks: int, batch: int) -> None:
    assert batch_for(rows, clicks) == batch


@pytest.mark.parametrize(
    ("rows", "batch", "patience"), [(590_856, 2048, 2), (16_000, 64, 2), (16_000, 256, 3), (1_000, 64, 8), (2, 64, 10)]
)
def test_patience_covers_128_steps(rows: int, batch: int, patience: int) -> None:
    assert patience_for(rows, batch) == patience


def test_what_the_user_sets_stays() -> None:
    both = Training(batch=100, patience=7)
    assert both.fitted(16_000, 64) == both
    assert Training(batch=100).fitted(16_000, 64).patience == patience_for(16_000, 100)
    ham = fw.searches.HAM(batch=300)
    assert ham.fitted(16_000, 64) == ham
    assert fw.searches.HAM().fitted(16_000, 64).batch == 256


def test_a_race_fits_its_entrants_and_its_retraining() -> None:
    found = Race(entrants={"ham": {}, "rounds": {"batch": 99}, "uniform": {}}).fitted(16_000, 4_000)
    assert {name: values.get("batch") for name, values in found.entrants.items()} == {
        "ham": 64, "rounds": 99, "uniform": None,
    }  # fmt: skip
    assert (found.retrain.batch, found.retrain.patience) == (64, 2)


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ({"batch": 1}, r"^\[pretrain\] batch = 1: input should be greater than or equal to 2\.$"),
        ({"batch": "many"}, r"^\[pretrain\] batch = 'many': input should be a valid integer, unable to parse"),
        ({"patience": 0.5}, r"^\[pretrain\] patience = 0.5: input should be a valid integer, got a number with"),
    ],
)
def test_a_wrong_number_is_one_line(table: dict[str, Any], says: str) -> None:
    with pytest.raises(SettingsError, match=says):
        RunSettings.parse({"pretrain": table})
    assert RunSettings.parse({"pretrain": {"batch": "auto", "patience": "auto"}}) == RunSettings()


def test_a_run_records_numbers_and_resumes_with_auto_or_with_them(tmp_path: Path) -> None:
    tables: dict[str, Any] = {
        "run": {"budgets": ["8"], "device": "cpu"},
        "data": {"name": "planted", "rows": 1000},
        "model": {"name": "fm", "width": 2},
        "pretrain": {"epochs": 1},
        "search": {"name": "rounds", "rounds": 2},
        "retrain": {"epochs": 1},
    }
    (record,) = fw.run(tables, tmp_path)
    kept = read_toml(tmp_path / "settings.toml")
    stage = json.loads((tmp_path / "seed-0" / "retrain" / "8-columns" / "stage.json").read_text())
    for values in (kept, stage, record.settings):
        assert [values[name]["batch"] for name in ("pretrain", "search", "retrain")] == [64, 64, 64]
        assert values["pretrain"]["patience"] == patience_for(
            Dataset.open(tmp_path / "dataset").info["rows"]["train"], 64
        )
    assert fw.run(tables, tmp_path) == fw.run(tmp_path / "settings.toml", tmp_path) == [record]


def test_a_comparison_records_numbers(planted: Dataset) -> None:
    found = CompareSettings.parse({"compare": {"methods": ["ham", "uniform"]}}).fitted(planted).values()
    assert (found["pretrain"]["batch"], found["methods"]["ham"]["batch"]) == (64, 64)
    assert "batch" not in found["methods"]["uniform"]


@pytest.mark.parametrize("name", MODELS)
def test_a_new_model_predicts_the_click_rate(name: str, planted: Dataset) -> None:
    labels = np.zeros(len(planted.train), np.uint8)
    labels[:48] = 1
    cls = resolve("model", MODELS, name)
    rows = replace(Task.of(planted, cls(width=4), device="cpu"), train_rows=Split(planted.train.ids, labels))
    model = rows.new_model().eval()
    expected = math.log((48 + 0.5) / (len(labels) - 48 + 0.5))
    assert bias_of(model) == pytest.approx(expected)
    spread = model(torch.from_numpy(np.array(planted.train.ids[:500]))).detach()
    assert abs(float(spread.mean()) - expected) < 0.5
    drawn = replace(rows, model=cls(width=4, output_bias="drawn")).new_model()
    assert bias_of(drawn) != pytest.approx(expected)


def test_one_label_only_gives_a_finite_bias(planted: Dataset) -> None:
    labels = np.ones(len(planted.train), np.uint8)
    task = replace(Task.of(planted, fw.models.FM(width=2), device="cpu"), train_rows=Split(planted.train.ids, labels))
    assert math.isfinite(bias_of(task.new_model()))


def test_every_narrow_model_starts_there_too(planted: Dataset) -> None:
    task = Task.of(planted, fw.models.FM(width=2), device="cpu")
    found = fw.search(task, fw.searches.MDE(), "8 columns").model
    assert bias_of(found) == pytest.approx(math.log(task.click_rate / (1 - task.click_rate)))


def test_an_unfitted_setting_is_our_own_bug() -> None:
    assert chosen(3) == 3
    with pytest.raises(AssertionError):
        chosen("auto")
