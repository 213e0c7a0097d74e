"""A run with tiers: searched, compacted, continued, described, and refused if the tiers change."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fieldwise.comparison.results import compare
from fieldwise.core.errors import DataError
from fieldwise.data.store import Dataset
from fieldwise.exports.folder import load
from fieldwise.pipeline import stages as pipeline
from fieldwise.reports.run.view import open_run
from tests.command_line import cli

STAGE = {"batch": 512, "epochs": 1}
SMALL: dict[str, Any] = {
    "run": {"budgets": ["6 columns", "4 KB int8"], "device": "cpu"},
    "data": {"name": "planted", "rows": 3000, "tiers": 0.25},
    "model": {"name": "fm", "width": 3},
    "pretrain": STAGE,
    "search": {"name": "uniform"},
    "retrain": {**STAGE, "distil": 0.5},
}
FIELDS = (
    "user:frequent", "user:rare", "item:frequent", "item:rare", "city", "noise_a:frequent", "noise_a:rare", "noise_b",
    "noise_c",
)  # fmt: skip
"""Of the planted fields, three have 100 values or more."""


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "tiers"
    pipeline.run(SMALL, folder)
    return folder


def test_every_tier_has_a_width_and_the_folder_predicts_raw_rows(out: Path) -> None:
    data = Dataset.open(out / "dataset")
    assert data.schema.names == FIELDS
    cards = dict(zip(FIELDS, data.schema.cardinalities, strict=True))
    assert (cards["user:frequent"], cards["user:rare"]) == (101, 300), "of 399 users in training rows"
    for record in open_run(out).records:
        assert tuple(record.fields) == FIELDS
    folders = list((out / "seed-0" / "compact").iterdir())
    assert len(folders) == 2
    for folder in folders:
        predictor = load(folder)
        rows = [dict.fromkeys(("user", "item", "city", "noise_a", "noise_b", "noise_c"), value) for value in (3, None)]
        assert set(predictor.columns) <= set(rows[0])
        assert np.isfinite(predictor.predict(rows)).all()
    assert "user:frequent" in (out / "report-planted.md").read_text()


def test_a_run_is_continued_with_the_same_tiers_only(out: Path) -> None:
    before = (out / "seed-0" / "pretrain" / "model.safetensors").stat().st_mtime_ns
    pipeline.run(SMALL, out)
    assert (out / "seed-0" / "pretrain" / "model.safetensors").stat().st_mtime_ns == before
    with pytest.raises(DataError, match=r"source\.tiers \(0\.25 -> 0\.5\)"):
        pipeline.run({**SMALL, "data": {**SMALL["data"], "tiers": 0.5}}, out)


def test_describe_shows_tiers(out: Path) -> None:
    shown = cli("describe", out / "dataset")
    assert shown.returncode == 0, shown.stderr
    assert "frequent values" in shown.stdout
    assert "0.0/0.0/0.0" in next(line for line in shown.stdout.splitlines() if "user:rare" in line)


def test_a_comparison_reads_the_dataset_with_tiers(out: Path, tmp_path: Path) -> None:
    tables = {name: table for name, table in SMALL.items() if name not in ("data", "search")}
    run = {"budgets": ["6 columns"], "device": "cpu", "dataset": out / "dataset"}
    found = compare({**tables, "run": run, "compare": {"models": ["fm"], "methods": ["uniform"]}}, tmp_path / "compare")
    (record,) = [cell.record for cell in found.cells]
    assert record is not None
    assert tuple(record.fields) == FIELDS
