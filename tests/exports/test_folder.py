"""A model folder predicts raw rows by itself, and says no to whatever is not what was exported."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from fieldwise.core.errors import DataError, RunError
from fieldwise.core.schema import Schema
from fieldwise.data.encoder import Encoder
from fieldwise.exports.folder import export, load
from fieldwise.exports.info import FileInfo, ModelInfo, _digest
from fieldwise.models.dcnv2 import DCNv2
from fieldwise.models.fm import FM
from tests.exports.cases import Case, shaken


def test_a_loaded_folder_predicts_what_the_model_does(case: Case, served: Path) -> None:
    torch.manual_seed(0)
    model, mask = shaken(DCNv2(width=5), case.data)
    ids = torch.from_numpy(case.data.encoder.encode(case.rows))
    expected = torch.sigmoid(model(ids)).detach().numpy()
    predictor = load(served)
    assert np.array_equal(predictor.predict(case.rows), expected)
    assert np.array_equal(predictor.predict(case.rows.to_pandas()), expected)
    assert np.array_equal(predictor.predict(case.rows.to_pydict()), expected)
    assert len(np.unique(expected)) > 300
    assert predictor.predict(case.rows.slice(0, 0)).shape == (0,)
    assert [field.kept for field in ModelInfo.read(served).fields] == [list(kept) for kept in mask.kept]


def test_fields_that_are_not_needed_have_neither_vocabulary_nor_column(case: Case, served: Path) -> None:
    predictor, info = load(served), ModelInfo.read(served)
    gone = {field.name for field in info.fields} - set(info.needs)
    assert gone == {
        name for name, width in zip(case.data.schema.names, predictor.model.layout.widths, strict=True) if not width
    }
    assert len(gone) == 3
    assert len(list(served.glob("vocabulary-*"))) == len(info.needs)
    rows = case.rows.select(predictor.columns)
    assert rows.num_columns < case.rows.num_columns
    assert np.array_equal(predictor.predict(rows), predictor.predict(case.rows))


def test_many_rows_are_predicted_part_by_part(case: Case, served: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    predictor = load(served)
    whole = predictor.predict(case.rows)
    monkeypatch.setattr("fieldwise.exports.predictor.BATCH", 37)
    np.testing.assert_allclose(predictor.predict(case.rows), whole, atol=1e-7)


def test_loading_needs_neither_engine_nor_training_code(case: Case, served: Path, tmp_path: Path) -> None:
    columns = case.rows.slice(0, 5).to_pydict()
    code = (
        "import sys\n"
        "for name in ('duckdb', 'ibis', 'pyspark', 'onnx', 'fieldwise.train', 'fieldwise.searches',\n"
        "             'fieldwise.gates', 'fieldwise.reports', 'fieldwise.data.engines', 'fieldwise.data.prepare'):\n"
        "    sys.modules[name] = None\n"
        f"import fieldwise\nprint(fieldwise.load({str(served)!r}).predict({columns!r}).tolist())\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    np.testing.assert_allclose(json.loads(result.stdout), load(served).predict(columns), atol=1e-7)


def test_rows_without_a_needed_column_are_refused_by_name(case: Case, served: Path) -> None:
    predictor = load(served)
    with pytest.raises(DataError, match=f"lack the columns {predictor.columns[1]}"):
        predictor.predict(case.rows.drop_columns([predictor.columns[1]]))


def test_a_model_without_vocabularies_says_so(tmp_path: Path) -> None:
    export(FM().build(Schema.of(user=50, city=7).layout(4)), tmp_path / "m")
    with pytest.raises(RunError, match=r"exported without vocabularies.*data.encoder"):
        load(tmp_path / "m").predict({"user": [1]})


def test_the_encoder_of_other_rows_is_refused(case: Case, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="not the model's"):
        export(FM().build(Schema.of(user=50, city=7).layout(4)), tmp_path / "m", case.data.encoder)
    assert not (tmp_path / "m").exists()


def test_frames_of_numbers_predict_as_text_does(case: Case, served: Path) -> None:
    rows = case.rows.to_pandas()
    rows["count"] = pd.to_numeric(rows["count"])
    assert np.array_equal(load(served).predict(rows), load(served).predict(case.rows))


def _truncate(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-9])


def _flip(folder: Path) -> None:
    path = folder / "model.safetensors"
    data = bytearray(path.read_bytes())
    data[-9] ^= 1
    path.write_bytes(data)


def _swap(folder: Path) -> None:
    one, other = folder / "vocabulary-000.parquet", folder / "vocabulary-001.parquet"
    text = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(text)


def _edit(old: str, new: str) -> Callable[[Path], None]:
    """Changes model.json, and nothing else."""

    def change(folder: Path) -> None:
        text = (folder / "model.json").read_text()
        assert old in text
        (folder / "model.json").write_text(text.replace(old, new, 1))

    return change


def _forge(old: str, new: str) -> Callable[[Path], None]:
    """Changes model.json as somebody would who knows how its digest is made."""

    def change(folder: Path) -> None:
        _edit(old, new)(folder)
        values = json.loads((folder / "model.json").read_text())
        values["digest"] = _digest({name: value for name, value in values.items() if name != "digest"})
        (folder / "model.json").write_text(json.dumps(values))

    return change


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda f: (f / "model.json").unlink(), "holds no model"),
        (lambda f: (f / "model.safetensors").unlink(), "holds no whole model"),
        (lambda f: (f / "encoding.json").unlink(), "holds no whole model"),
        (lambda f: (f / "model.json").write_text("{"), "is damaged"),
        (lambda f: (f / "model.json").write_text("[]"), "has format None"),
        (_truncate, "model.safetensors' has [0-9]+ bytes, model.json says"),
        (_flip, "model.safetensors' is not the file that was exported"),
        (_swap, "vocabulary-000.parquet' (has|is not)"),
        (_edit('"fieldwise-model/2"', '"x"'), "has format 'x'"),
        (_edit('"width": 1', '"width": 2'), "was changed after it was written"),
        (_forge('"cardinality": 30', '"cardinality": 1000000000000'), "Sizes of 1000000000[0-9]* are claimed"),
        (
            _forge('"hidden": [\n   16', '"hidden": [\n   1000000000000'),
            r"shape \(1000000000000, 16\), torch.float32 are claimed",
        ),
        (_forge('"length": 3', '"length": 1000000000000'), "is not understood: fields"),
        (_forge('"width": 1', '"width": 2'), "are claimed"),
        (_forge('"width": 1', '"width": -1'), "is not understood: fields"),
        (
            _forge('"name": "dcnv2"', '"name": "os:system"'),
            "Add --model os:system, or model=... in Python, if you trust it",
        ),
        (_forge('"name": "dcnv2"', '"name": "fieldwise.cli:main"'), "is not the library's, and no file may run code"),
        (_forge('"cross_layers": 3', '"cross_layers": -1'), "not understood"),
        (_forge('"encoding.json"', '"../encoding.json"'), "is not understood: files"),
        (
            _forge('"vocabulary-001.parquet": {', '"vocabulary-999.parquet": {'),
            "does not list '.*vocabulary-001.parquet'",
        ),
    ],
)
def test_damaged_and_foreign_folders_are_refused(
    served: Path, tmp_path: Path, change: Callable[[Path], None], says: str
) -> None:
    folder = Path(shutil.copytree(served, tmp_path / "model"))
    change(folder)
    with pytest.raises((RunError, ValueError), match=says) as caught:
        load(folder)
    assert "\n" not in str(caught.value)


def test_vocabularies_of_other_sizes_than_the_tables_are_refused(case: Case, served: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(served, tmp_path / "model"))
    fields = load(served).encoder.fields
    Encoder([fields[1], fields[0], *fields[2:]]).save(folder)
    values = json.loads((folder / "model.json").read_text())
    del values["digest"]
    for name in values["files"]:
        values["files"][name] = FileInfo.of(folder / name).to_json()
    (folder / "model.json").write_text(json.dumps({**values, "digest": _digest(values)}))
    with pytest.raises(RunError, match=r"encoding\.json is not that of the fields"):
        load(folder)


@pytest.mark.parametrize("device", ["cuda:99", "gpu"])
def test_a_device_that_is_not_there_is_told(served: Path, device: str) -> None:
    with pytest.raises(RunError, match=f"Device '{device}' cannot be used"):
        load(served, device)


def test_a_run_folder_is_told_where_its_models_are(served: Path, tmp_path: Path) -> None:
    shutil.copytree(served, tmp_path / "run" / "seed-0" / "compact" / "25pct-parameters")
    with pytest.raises(RunError, match=r"It is a run; name one of its models: .*25pct-parameters"):
        load(tmp_path / "run")
