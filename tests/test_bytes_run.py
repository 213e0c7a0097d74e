"""A run with budgets in bytes: what lies in the folder is what the budget promises, and every command reads it."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open

from fieldwise.core.budget import Budget
from fieldwise.core.errors import BudgetError, SettingsError
from fieldwise.core.mask import Mask
from fieldwise.core.store import Store
from fieldwise.data.store import Dataset
from fieldwise.exports.folder import load
from fieldwise.exports.info import ModelInfo
from fieldwise.pipeline import stages as pipeline
from fieldwise.pipeline.settings import RunSettings
from fieldwise.reports.run.headline import chosen, sentence, size
from fieldwise.reports.run.page_data import run_data
from fieldwise.reports.run.view import open_run
from fieldwise.searches.total import typed_budget
from fieldwise.train.evaluate import evaluate
from tests.command_line import cli

BUDGETS = ["14% bytes auto", "3000 bytes int4", "40% bytes int8 total"]


def settings(**changes: dict[str, Any]) -> RunSettings:
    tables: dict[str, dict[str, Any]] = {
        "run": {"budgets": BUDGETS, "device": "cpu"},
        "data": {"name": "planted", "rows": 4000},
        "model": {"name": "deepfm", "width": 4},
        "pretrain": {"batch": 512, "epochs": 2, "learning_rate": 0.02},
        "search": {"name": "ham", "batch": 512, "epochs": 2},
        "retrain": {"batch": 512, "epochs": 2},
    }
    if "search" in changes:
        tables["search"] = {}
    return RunSettings.parse({name: {**values, **changes.get(name, {})} for name, values in tables.items()})


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("bytes") / "run"
    pipeline.run(settings(), out)
    return out


def tensor_bytes(folder: Path) -> int:
    """Bytes of all tensors in a model's file, without the header."""
    data = (folder / "model.safetensors").read_bytes()
    return len(data) - 8 - int.from_bytes(data[:8], "little")


@pytest.mark.parametrize("text", BUDGETS)
def test_the_file_holds_what_the_budget_promises(finished: Path, text: str) -> None:
    data, model = Dataset.open(finished / "dataset"), settings().model
    folder = finished / "seed-0" / "compact" / Budget.parse(text).slug
    info, budget = ModelInfo.read(folder), typed_budget(model, data.schema, Budget.parse(text))
    layout, linear = model.layout(data.schema), model.linear(data.schema)
    assert info.store == budget.stored
    assert info.bytes is not None
    full = budget.full(layout, linear)
    if budget.total:
        dense = ModelInfo.read(finished / "seed-0" / "pretrain").bytes
        assert dense is not None
        limit = budget.amount_of(full + dense.dense)
        assert tensor_bytes(folder) <= limit
        return
    limit = budget.amount_of(full)
    assert tensor_bytes(folder) <= limit + info.bytes.dense
    mask = json.loads((finished / "seed-0" / "search" / Budget.parse(text).slug / "mask.json").read_text())
    first = [field["first_order"] for field in mask["fields"]]
    assert first == [field.first_order for field in info.fields]
    costs = budget.costs(layout, linear)
    kept = np.concatenate([
        *[np.isin(np.arange(f["width"]), f["kept"]) for f in mask["fields"]], np.asarray(first, dtype=bool)
    ])  # fmt: skip
    left = limit - info.bytes.per_id
    assert left <= 0.02 * limit or costs[~kept].min() > left - layout.columns / 2


def test_records_and_reports_show_each_part(finished: Path) -> None:
    records = open_run(finished).records
    for record in records:
        folder = finished / "seed-0" / "compact" / Budget.parse(record.budget).slug
        assert record.compact_bytes is not None
        assert record.full_bytes is not None
        assert record.compact_bytes.folder == sum(path.stat().st_size for path in folder.iterdir())
        assert record.store == {"auto": "int8"}.get(
            Budget.parse(record.budget).store, Budget.parse(record.budget).store
        )
        assert list(record.full_stored) == ["float16", "int8", "int4"]
        assert record.full_stored["int8"].bytes.per_id < 0.3 * record.full_bytes.per_id
        data = Dataset.open(finished / "dataset")
        found = evaluate(load(folder).model, data.test)
        assert found.auc == pytest.approx(record.compact_test.auc, abs=1e-4)  # other alignment, other rounding
        assert found.log_loss == pytest.approx(record.compact_test.log_loss, abs=1e-6)
    (report,) = finished.glob("report*.md")
    text = report.read_text()
    assert "## Stored bytes" in text
    assert "never vocabularies" in text
    for sizes in (record.compact_bytes, record.full_bytes):
        assert sizes is not None
        assert f"{sizes.tables:,}" in text


def test_commands_read_stored_tables(finished: Path, tmp_path: Path) -> None:
    folder = finished / "seed-0" / "compact" / Budget.parse(BUDGETS[1]).slug
    shown = cli("describe", folder)
    assert shown.returncode == 0, shown.stderr
    for word in (
        "tables (int4)",
        "first-order weights (int4)",
        "dense layers (float32)",
        "vocabularies",
        "whole folder",
    ):
        assert word in shown.stdout
    again = cli("export", folder, "--store", "int8", "--out", tmp_path / "int8")
    assert again.returncode == 2
    assert "stored as int4 already" in again.stderr
    assert cli("export", folder, "--store", "int3", "--out", tmp_path / "int8").returncode == 2
    full = finished / "seed-0" / "pretrain"
    assert cli("export", full, "--store", "int4 row", "--out", tmp_path / "row").returncode == 0
    assert str(ModelInfo.read(tmp_path / "row").store) == "int4 row"
    with safe_open(tmp_path / "row" / "model.safetensors", "np") as file:
        assert "embedding.row_scales" in set(file.keys())


def test_a_store_that_the_budget_does_not_count_is_refused_before_any_work(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="budget of 14% bytes int8 counts int8"):
        pipeline.run(settings(retrain={"store": "int4"}), tmp_path / "run")
    assert not (tmp_path / "run" / "seed-0").exists()
    with pytest.raises(BudgetError, match="cannot be met"):
        pipeline.run(settings(run={"budgets": ["900 bytes int8 total"]}), tmp_path / "run")
    with pytest.raises(SettingsError, match="budget of 12% bytes mixed counts mixed"):
        pipeline.run(settings(run={"budgets": ["12% bytes auto"]}, retrain={"store": "int4"}), tmp_path / "run")
    store: dict[str, Any] = {"store": 'mixed ["user"]'}
    with pytest.raises(SettingsError, match=r"no field 'user'\. Choose from: 'user:frequent', 'user:rare'"):
        pipeline.run(settings(run={"budgets": ["25%"]}, data={"tiers": 0.25}, retrain=store), tmp_path / "tiers")
    assert not list(tmp_path.glob("*/seed-0"))


def test_parameters_may_be_stored_in_any_type(tmp_path: Path) -> None:
    out = tmp_path / "run"
    pipeline.run(settings(run={"budgets": ["40% parameters"]}, retrain={"store": "int8 row"}), out)
    assert str(ModelInfo.read(out / "seed-0" / "compact" / "40pct-parameters").store) == "int8 row"


def test_the_headline_and_the_cards_count_stored_bytes(finished: Path) -> None:
    record = next(r for r in open_run(finished).records if r.store == "int4")
    folder = finished / "seed-0" / "compact" / Budget.parse(record.budget).slug
    with safe_open(folder / "model.safetensors", "np") as file:
        tensors = {name: file.get_tensor(name).nbytes for name in file.keys()}  # noqa: SIM118
    full, small = record.stored_sizes
    assert small.weights == sum(tensors.values())
    assert small.scales == sum(count for name, count in tensors.items() if "scales" in name) > 0
    assert full.scales == 0
    said = sentence([record])
    for before, after in ((full.tables, small.tables), (full.weights, small.weights)):
        assert f"from {size(before)} to {size(after)} ({1 - after / before:.0%} fewer bytes)" in said
    assert f"the first-order weights from {size(full.first_order)} to {size(small.first_order)}," in said
    assert f"the dense layers from {size(full.dense)} to {size(small.dense)}," in said
    assert f"Tables are stored as int4 instead of float32, including {size(small.scales)} of scales." in said
    (result,) = [r for r in run_data(open_run(finished))["results"] if r["budget"] == record.budget]
    assert result["compact"]["stored"]["all"] == small.weights
    assert result["compact"]["stored"]["per_id"] == small.per_id
    older = record.model_copy(update={"full_bytes": None, "compact_bytes": None})
    assert older.stored_sizes[1].tables == 4 * record.compact_size.embedding


def test_the_smallest_model_has_the_fewest_bytes_not_numbers(finished: Path) -> None:
    records = [r for r in open_run(finished).records if r.store in ("int4", "int8")][:2]
    same = [r.model_copy(update={"compact_valid": records[0].compact_valid}) for r in records]
    wide = same[0].model_copy(update={"compact_bytes": same[0].full_bytes})
    assert chosen([wide, same[1]]) == [same[1]]


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with tiers whose budget chooses columns, first-order weights and bits."""
    out = tmp_path_factory.mktemp("mixed") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(settings().model), "int8_factor", 3000.0)  # two epochs learn too little
        pipeline.run(
            settings(run={"budgets": ["12% bytes auto"]}, data={"tiers": 0.25}, search={"name": "elimination"}), out
        )
    return out


def test_a_run_stores_some_fields_in_int8(mixed: Path) -> None:
    data, model = Dataset.open(mixed / "dataset"), settings().model
    folder = mixed / "seed-0" / "compact" / "12pct-bytes-auto"
    info = ModelInfo.read(folder)
    mask = Mask.from_json(json.loads((mixed / "seed-0" / "search" / folder.name / "mask.json").read_text()))
    assert any(name.endswith(":frequent") for name in mask.in_int8)
    assert info.store == Store("int4", int8=mask.in_int8)
    assert info.bytes is not None
    full = Budget.parse("100% bytes").full(model.layout(data.schema), model.linear(data.schema))
    assert info.bytes.per_id <= 0.12 * full
    with safe_open(folder / "model.safetensors", "np") as file:
        names = set(file.keys())
    assert {"embedding.int4.numbers", "embedding.int4.scales"} < names
    assert any(name.startswith("embedding.int8.table_") for name in names)
    (record,) = open_run(mixed).records
    assert record.store == "int4 and int8"
    assert evaluate(load(folder).model, data.test).auc == pytest.approx(record.compact_test.auc, abs=1e-4)
    (report,) = mixed.glob("report*.md")
    assert "| int4 and int8 |" in report.read_text()


def test_commands_read_mixed_tables(mixed: Path, tmp_path: Path) -> None:
    folder = mixed / "seed-0" / "compact" / "12pct-bytes-auto"
    shown = cli("describe", folder)
    assert shown.returncode == 0, shown.stderr
    assert "tables (int4 and int8)" in shown.stdout
    made = cli("export", folder, "--to", "onnx", "--out", tmp_path / "model.onnx")
    assert made.returncode == 0, made.stderr
    full = mixed / "seed-0" / "pretrain"
    made = cli("export", full, "--store", 'mixed ["city"]', "--out", tmp_path / "one")
    assert made.returncode == 0, made.stderr
    assert ModelInfo.read(tmp_path / "one").store == Store("int4", int8=("city",))
    lines = [line.split() for line in cli("describe", tmp_path / "one").stdout.splitlines() if " yes " in line]
    assert {line[0]: line[4] for line in lines}.items() >= {"city": "int8", "noise_b": "int4"}.items()
    for wrong, says in (("mixed", "Allowed after mixed"), ('mixed ["nobody"]', "there is no field 'nobody'")):
        made = cli("export", full, "--store", wrong, "--out", tmp_path / "two")
        assert made.returncode == 2
        assert says in made.stderr
        assert not (tmp_path / "two").exists()


def test_the_page_shows_stored_bytes(finished: Path) -> None:
    (page,) = finished.glob("report*.html")
    text = page.read_text()
    sizes = open_run(finished).records[0].compact_bytes
    assert sizes is not None
    assert f'"{sizes.tables:,}"' in text
    assert '"heads":["budget","seed","model","store"' in text.replace('", "', '","').replace('": [', '":[')
