"""A model folder predicts raw rows by itself, and damaged or changed folders are refused."""

import json
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import save_file

from fieldwise.core.errors import DataError, RunError
from fieldwise.core.schema import Field, Layout, Schema
from fieldwise.data.encoder import Encoder
from fieldwise.exports.folder import export, load, load_trained
from fieldwise.exports.info import FileInfo, ModelInfo, _digest
from fieldwise.exports.targets import export_to
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
        "             'fieldwise.gates', 'fieldwise.reports', 'fieldwise.data.engines', 'fieldwise.data.prepare',\n"
        "             'sympy'):\n"  # torch's compiler, 73 MB
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
    with pytest.raises(DataError, match="differ from the model's"):
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
    """Changes only model.json."""

    def change(folder: Path) -> None:
        text = (folder / "model.json").read_text()
        assert old in text
        (folder / "model.json").write_text(text.replace(old, new, 1))

    return change


def _forge(old: str, new: str) -> Callable[[Path], None]:
    """Changes model.json and updates its digest, as an attacker would."""

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
        (lambda f: (f / "model.safetensors").unlink(), "holds no complete model"),
        (lambda f: (f / "encoding.json").unlink(), "holds no complete model"),
        (lambda f: (f / "model.json").write_text("{"), "is damaged"),
        (lambda f: (f / "model.json").write_text("[]"), "has format None"),
        (_truncate, "model.safetensors' has [0-9]+ bytes, model.json lists"),
        (_flip, "model.safetensors' has changed since the export"),
        (_swap, "vocabulary-000.parquet' has"),
        (_edit('"fieldwise-model/2"', '"x"'), "has format 'x'"),
        (_edit('"width": 1', '"width": 2'), "was changed after it was written"),
        (_forge('"cardinality": 27', '"cardinality": 1000000000000'), "tables need 40000000[0-9]* bytes"),
        (
            _forge('"hidden": [\n   16', '"hidden": [\n   1000000000000'),
            r"should have shape \(1000000000000, 16\) and type torch.float32",
        ),
        (_forge('"length": 3', '"length": 1000000000000'), "is not valid: fields"),
        (_forge('"width": 1', '"width": 2'), "are missing from the file"),
        (_forge('"width": 1', '"width": -1'), "is not valid: fields"),
        (
            _forge('"name": "dcnv2"', '"name": "os:system"'),
            "Add model=<its function or class>, if you trust it",
        ),
        (
            _forge('"name": "dcnv2"', '"name": "fieldwise.cli:main"'),
            "is not part of the library and is not imported on a file's word",
        ),
        (_forge('"cross_layers": 3', '"cross_layers": -1'), "settings are not valid"),
        (_forge('"encoding.json"', '"../encoding.json"'), "is not valid: files"),
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


@pytest.mark.parametrize("device", ["cuda:99", "gpu", "meta"])
def test_a_device_that_is_not_there_is_told(served: Path, device: str) -> None:
    with pytest.raises(RunError, match=f"Device '{device}' cannot be used"):
        load(served, device)


def test_a_run_folder_is_told_where_its_models_are(served: Path, tmp_path: Path) -> None:
    shutil.copytree(served, tmp_path / "run" / "seed-0" / "compact" / "25pct-parameters")
    with pytest.raises(RunError, match=r"It is a run; name one of its models: .*25pct-parameters"):
        load(tmp_path / "run")


def _relist(folder: Path, **files: object) -> None:
    """Makes model.json list the current files, except those given as None."""
    values = json.loads((folder / "model.json").read_text())
    del values["digest"]
    for name in list(values["files"]):
        if files.get(name.replace(".", "_").replace("-", "_"), name) is None:
            del values["files"][name]
        else:
            values["files"][name] = FileInfo.of(folder / name).to_json()
    (folder / "model.json").write_text(json.dumps({**values, "digest": _digest(values)}))


@pytest.mark.parametrize("name", ["model.safetensors", "vocabulary-000.parquet"])
def test_files_that_are_not_listed_are_not_read(served: Path, tmp_path: Path, name: str) -> None:
    folder = Path(shutil.copytree(served, tmp_path / "model"))
    _relist(folder, **{name.replace(".", "_").replace("-", "_"): None})
    with pytest.raises(RunError, match=rf"model.json does not list '.*{name}'"):
        load(folder)
    values = json.loads((folder / "model.json").read_text())
    values["files"] = {}
    values["digest"] = _digest({key: value for key, value in values.items() if key != "digest"})
    (folder / "model.json").write_text(json.dumps(values))
    with pytest.raises(RunError, match="does not list"):
        load(folder)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_weights_that_are_not_finite_are_neither_written_nor_read(tmp_path: Path, value: float) -> None:
    model = FM().build(Schema.of(user=50, city=7).layout(4))
    export(model, tmp_path / "m")
    with torch.no_grad():
        model.embedding.table(0)[3, 1] = value
    with pytest.raises(RunError, match=r"'embedding\.tables\.4' contain NaN or infinite numbers"):
        export(model, tmp_path / "n")
    assert not (tmp_path / "n").exists()
    save_file(model.state_dict(), tmp_path / "m" / "model.safetensors")
    _relist(tmp_path / "m")
    with pytest.raises(RunError, match="NaN or infinite"):
        load(tmp_path / "m")


def test_a_model_that_gives_nan_says_so(served: Path, case: Case) -> None:
    predictor = load(served)
    for name, buffer in predictor.model.named_buffers():
        if name.endswith("running_var"):
            buffer.fill_(-1e9)
    with pytest.raises(RunError, match="The model predicts NaN for 400 rows"):
        predictor.predict(case.rows)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"hidden": [\n   16,\n   16', '"hidden": [\n   65536,\n   65536'),
        ('"cross_layers": 3', '"cross_layers": 1000'),
        ('"cross_layers": 3', '"cross_layers": 65536'),
        ('"cross_layers": 3', '"cross_layers": 9223372036854775807'),
        ('"hidden": [\n   16,\n   16', '"hidden": [\n   16,\n   9223372036854775807'),
        ('"hidden": [\n   16,\n   16', '"hidden": [' + "1," * 30_000 + "1"),
    ],
)
def test_no_memory_is_taken_for_layers_that_are_not_stored(served: Path, tmp_path: Path, old: str, new: str) -> None:
    folder = Path(shutil.copytree(served, tmp_path / "model"))
    _forge(old, new)(folder)
    before, started = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    with pytest.raises(RunError, match=r"are stored|should have|missing from the file|damaged|or equal to 1000"):
        load(folder)
    assert time.process_time() - started < 3
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # KiB


def test_many_fields_without_a_table_are_read_in_time(tmp_path: Path) -> None:
    schema = Schema(tuple(Field(f"field {j}", 3, 20) for j in range(3_000)))
    export(DCNv2().build(Layout(schema, (4,) + (0,) * 2_999)), tmp_path / "m")
    started = time.process_time()
    assert load(tmp_path / "m").probability.places == 20
    assert time.process_time() - started < 3
    _forge('"length": 20', '"length": 1000')(tmp_path / "m")
    load(tmp_path / "m")
    text = (tmp_path / "m" / "model.json").read_text().replace('"length": 20', '"length": 1000')
    (tmp_path / "m" / "model.json").write_text(text)
    _relist(tmp_path / "m")
    with pytest.raises(RunError, match="A row has 3000000 ids"):
        load(tmp_path / "m")


@pytest.mark.parametrize("name", ["model.json", "model.safetensors", "encoding.json", "vocabulary-001.parquet"])
def test_pipes_and_endless_devices_are_not_read(served: Path, tmp_path: Path, name: str) -> None:
    folder = Path(shutil.copytree(served, tmp_path / "model"))
    (folder / name).unlink()
    os.mkfifo(folder / name)
    with pytest.raises(RunError, match="not a regular file"):
        load(folder)
    (folder / name).unlink()
    (folder / name).symlink_to("/dev/zero")
    with pytest.raises(RunError, match="not a regular file"):
        load(folder)


@pytest.mark.parametrize(
    "values", [pa.array([[1], [2]]), pa.array([{"a": 1}] * 2), pa.array([b"a", b"b"]), pa.array(["a"] * 5_000)]
)
def test_vocabularies_that_are_none_are_one_line(served: Path, tmp_path: Path, values: pa.Array) -> None:
    folder = Path(shutil.copytree(served, tmp_path / "model"))
    counts = pa.array([1] * len(values))
    pq.write_table(pa.table({"value": values, "count": counts}), folder / "vocabulary-000.parquet")
    _relist(folder)
    with pytest.raises(RunError, match=r"vocabulary-000.parquet' holds .*Export it again") as caught:
        load(folder)
    assert "\n" not in str(caught.value)


def test_settings_are_not_written_into_the_code_of_others(tmp_path: Path) -> None:
    export(FM().build(Schema.of(user=50, city=7).layout(4)), tmp_path / "m")
    _forge('"common": 16', "\"common\": \"16), __import__('os').system('x'), (1\"")(tmp_path / "m")
    with pytest.raises(RunError, match=r"'common' is .*Allowed: a positive integer"):
        export_to("fuxictr", tmp_path / "m", tmp_path / "x")


def test_loading_leaves_randomness_and_hooks_as_they_were(served: Path) -> None:
    torch.manual_seed(1)
    first = torch.rand(3)
    torch.manual_seed(1)
    load(served)
    assert torch.equal(torch.rand(3), first)
    assert not torch.nn.modules.module._global_parameter_registration_hooks


def test_a_model_with_a_vector_for_every_tier_predicts_but_is_not_trained_on(tmp_path: Path) -> None:
    """As versions before shared vectors wrote it."""
    schema = Schema.of(**{"u:frequent": 9, "u:rare": 30, "b": 5})
    old = FM(width=4).build(Layout(schema, (4, 4, 4)))
    export(old, tmp_path / "old")
    found = load(tmp_path / "old").model
    assert found.layout.shared is None
    ids = torch.zeros(3, 3, dtype=torch.int32)
    assert torch.equal(found(ids), old.eval()(ids))
    with pytest.raises(
        RunError, match=r"has a vector for every tier, as earlier versions built them\. Start a new run"
    ):
        load_trained(tmp_path / "old", FM)
