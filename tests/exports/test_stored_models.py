"""Models in every store: the same predictions in every form, exact sizes, and damaged folders refused."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime
import pyarrow as pa
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from fieldwise.core.errors import RunError, SettingsError
from fieldwise.core.registry import resolve
from fieldwise.core.store import Store
from fieldwise.exports.folder import export, load
from fieldwise.exports.info import FileInfo, ModelInfo, _digest, folder_bytes
from fieldwise.exports.inputs import feeds
from fieldwise.exports.onnx import to_onnx
from fieldwise.exports.program import to_pt2
from fieldwise.exports.targets import export_to
from fieldwise.models import MODELS
from fieldwise.models.deepfm import DeepFM
from fieldwise.models.stored import StoredModel, stored, stored_bytes
from tests.exports.cases import Case, shaken

TOLERANCE = 1e-5
"""Maximum difference of probabilities."""
STORES = ["float16", "int8", "int4", "int8 row", "int4 row", "mixed"]


@pytest.fixture(scope="module")
def int4_folder(case: Case, tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    model, mask = shaken(DeepFM(width=5), case.data)
    folder = tmp_path_factory.mktemp("int4") / "model"
    export(model, folder, case.data.encoder, mask, store="int4")
    return folder


QUICK = [
    ("fm", "int4"), ("fm", "mixed"), ("deepfm", "float16"), ("autoint", "int4 row"), ("dcnv2", "int8"),
    ("dcnv2", "int8 row"), ("dcnv2", "mixed"),
]  # fmt: skip
REST = [(name, store) for name in MODELS for store in STORES if (name, store) not in QUICK]


@pytest.mark.parametrize(("name", "store"), [*QUICK, *(pytest.param(*pair, marks=pytest.mark.slow) for pair in REST)])
def test_all_forms_agree_in_every_store(case: Case, name: str, store: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, mask = shaken(resolve("model", MODELS, name)(width=5), case.data)
    if store == "mixed":  # every other field, whether it has columns or not
        store = f"mixed {json.dumps(sorted(model.schema.names[::2]))}"
    assert 0 in model.layout.widths
    ids = torch.from_numpy(case.data.encoder.encode(case.rows))
    assert (ids == 0).any(), "no unseen value"
    rounded = stored(model, Store.parse(store))
    with torch.no_grad():
        expected = torch.sigmoid(rounded(ids)).numpy()
    assert expected.std() > 0.005
    export(model, tmp_path / "model", case.data.encoder, mask, store=store)
    predictor = load(tmp_path / "model")
    assert np.array_equal(predictor.predict(case.rows), expected)
    assert stored_bytes(rounded).per_id == Store.parse(store).bytes(model.layout) + (
        Store.parse(store).bytes(model.linear) if model.linear else 0
    )
    to_onnx(predictor, tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    (found,) = session.run(None, feeds(predictor.encoder, case.rows))
    np.testing.assert_allclose(found, expected, atol=TOLERANCE, rtol=0)
    to_pt2(predictor, tmp_path / "model.pt2")
    program = torch.export.load(tmp_path / "model.pt2").module()
    for count in (len(case.rows), 1):
        needed = torch.from_numpy(predictor.encoder.encode(case.rows.slice(0, count)))
        np.testing.assert_allclose(program(needed).detach().numpy(), expected[:count], atol=TOLERANCE, rtol=0)


def test_a_field_in_int8_must_be_one_of_the_model(case: Case) -> None:
    model, _ = shaken(DeepFM(width=5), case.data)
    for wrong, says in (
        ("nobody", r"there is no field 'nobody'\. Choose from: "),
        ("\x1b" * 999, r"field '(\\x1b)+"),
    ):
        with pytest.raises(SettingsError, match=says) as error:
            stored(model, Store("int4", int8=(wrong,)))
        assert len(str(error.value)) < 600


def test_a_graph_holds_the_tables_as_stored(int4_folder: Path, tmp_path: Path) -> None:
    import onnx

    to_onnx(load(int4_folder), tmp_path / "model.onnx")
    graph = onnx.load(tmp_path / "model.onnx").graph
    rows = sum(ModelInfo.read(int4_folder).layout.schema.cardinalities)
    kinds = {entry.name: (entry.data_type, entry.dims) for entry in graph.initializer}
    assert sum(kind == onnx.TensorProto.UINT8 for kind, _ in kinds.values()) >= 2
    gathered = {name for node in graph.node if node.op_type == "GatherElements" for name in node.input}
    tables = [name for name, (kind, dims) in kinds.items() if kind == onnx.TensorProto.UINT8 and dims]
    assert set(tables) <= gathered, "something converts a table before its rows are gathered"
    assert not any(k == onnx.TensorProto.FLOAT and d and d[0] >= rows // 2 for k, d in kinds.values())


def test_no_float_copy_of_a_table_is_loaded(int4_folder: Path) -> None:
    model = load(int4_folder).model
    assert isinstance(model, StoredModel)
    tables = {name: t for name, t in model.named_buffers() if "numbers" in name}
    assert {t.dtype for t in tables.values()} == {torch.uint8}
    floats = sum(
        t.numel() for t in (*model.embedding.buffers(), *model.embedding.parameters()) if t.is_floating_point()
    )
    assert floats <= 3 * model.layout.columns


def test_folders_name_their_bytes(case: Case, int4_folder: Path) -> None:
    info = ModelInfo.read(int4_folder)
    assert str(info.store) == "int4"
    sizes = folder_bytes(info, int4_folder)
    assert sizes.per_id == info.store.bytes(info.layout) + info.store.bytes(info.linear)
    weights = (int4_folder / "model.safetensors").stat().st_size
    header = 8 + int.from_bytes((int4_folder / "model.safetensors").read_bytes()[:8], "little")
    assert sizes.tables + sizes.first_order + sizes.dense == weights - header
    assert sizes.folder == sum(path.stat().st_size for path in int4_folder.iterdir())
    assert sizes.vocabularies == sizes.folder - weights - (int4_folder / "model.json").stat().st_size
    assert info.bytes is not None
    older = info.model_copy(update={"bytes": None})
    assert folder_bytes(older, int4_folder).tables == sizes.tables


def test_a_folder_changes_its_store_only_from_float32(case: Case, served: Path, tmp_path: Path) -> None:
    written = export_to("folder", served, tmp_path / "int8", store="int8")
    assert written.paths == [tmp_path / "int8"]
    found, before = load(tmp_path / "int8"), load(served)
    np.testing.assert_allclose(found.predict(case.rows), before.predict(case.rows), atol=0.02)
    assert not np.array_equal(found.predict(case.rows), before.predict(case.rows))
    now, then = ModelInfo.read(tmp_path / "int8"), ModelInfo.read(served)
    assert now.fields == then.fields
    assert str(now.store) == "int8"
    with pytest.raises(SettingsError, match=r"stored as int8 already.*Export the trained float32 model"):
        export_to("folder", tmp_path / "int8", tmp_path / "int4", store="int4")
    assert not (tmp_path / "int4" / "model.json").exists()
    export_to("folder", tmp_path / "int8", tmp_path / "again", store="int8")
    assert np.array_equal(load(tmp_path / "again").predict(case.rows), found.predict(case.rows))
    with pytest.raises(SettingsError, match="own folder"):
        export_to("folder", served, served, store="int8")
    with pytest.raises(SettingsError, match="holds no weights"):
        export_to("json", served, tmp_path / "json", store="int8")


def test_tables_for_other_libraries_are_floats(case: Case, served: Path, tmp_path: Path) -> None:
    export_to("torchrec", served, tmp_path, store="int8")
    model = load(served).model
    found = load_file(tmp_path / "torchrec.safetensors")
    for name, table in found.items():
        field = next((j for j, n in enumerate(model.layout.schema.names) if name == f"embedding_bags.{n}.weight"), None)
        assert table.dtype == torch.float32
        if field is not None:
            assert 0 < (table - model.embedding.table(field)).abs().max() < 0.02


Change = Callable[[dict[str, Tensor]], None]


def _with(name: str, change: Callable[[Tensor], Tensor]) -> Change:
    def apply(tensors: dict[str, Tensor]) -> None:
        key = next(key for key in tensors if name in key)
        tensors[key] = change(tensors[key]).contiguous()

    return apply


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (_with("embedding.numbers", lambda t: t[:-1]), r"should have shape \(.*\) and type torch.uint8|are stored"),
        (_with("embedding.numbers", lambda t: t[:, None]), "should have shape|are stored"),
        (_with("embedding.numbers", lambda t: t.to(torch.int8)), "type torch.uint8, but the stored ones"),
        (_with("embedding.numbers", lambda t: torch.cat([t, t])), "should have shape"),
        (_with("first_order.numbers", lambda t: t[:-1]), "should have shape|are stored"),
        (_with("embedding.scales", lambda t: t * float("nan")), "contain NaN or infinite"),
        (_with("first_order.scales", lambda t: t * float("inf")), "contain NaN or infinite"),
        (_with("embedding.scales", lambda t: t.half()), "type torch.float32, but the stored ones"),
        (_with("embedding.scales", lambda t: t[:-1]), "should have shape"),
        (lambda tensors: tensors.update(extra=torch.zeros(3)), "'extra' are not part of the model"),
        (lambda tensors: tensors.pop(next(k for k in tensors if "scales" in k)), "missing from the file"),
    ],
)
def test_damaged_tables_are_refused(int4_folder: Path, tmp_path: Path, change: Change, says: str) -> None:
    folder = Path(shutil.copytree(int4_folder, tmp_path / "model"))
    tensors = {name: tensor.clone() for name, tensor in load_file(folder / "model.safetensors").items()}
    change(tensors)
    save_file(tensors, folder / "model.safetensors")
    _sign(folder)
    with pytest.raises(RunError, match=says) as caught:
        load(folder)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("store", "says"),
    [
        ("int8", "are stored|should have shape|missing"),
        ("int3", "is not valid: store"),
        ("float32", "are stored|missing"),
    ],
)
def test_another_store_than_the_tables_is_refused(int4_folder: Path, tmp_path: Path, store: str, says: str) -> None:
    folder = Path(shutil.copytree(int4_folder, tmp_path / "model"))
    _sign(folder, store=store)
    with pytest.raises(RunError, match=says):
        load(folder)


def _sign(folder: Path, **changes: object) -> None:
    """Updates model.json to the current files, as an attacker would."""
    values = {**json.loads((folder / "model.json").read_text()), **changes}
    del values["digest"]
    for name in values["files"]:
        values["files"][name] = FileInfo.of(folder / name).to_json()
    (folder / "model.json").write_text(json.dumps({**values, "digest": _digest(values)}))


def test_vocabularies_of_models_are_compact(case: Case, served: Path) -> None:
    encoder = load(served).encoder
    whole = {field.name: field.vocabulary for field in case.data.encoder.fields}
    for field in encoder.fields:
        assert field.vocabulary.values.equals(whole[field.name].values)
        assert field.vocabulary.values.type == whole[field.name].values.type
        assert field.vocabulary.counts.type == pa.null()
    needed = [
        index for index, field in enumerate(case.data.encoder.fields) if field.name in set(load(served).model.needs)
    ]
    before = sum((case.data.folder / f"vocabulary-{index:03d}.parquet").stat().st_size for index in needed)
    assert sum(path.stat().st_size for path in served.glob("vocabulary-*")) < 0.75 * before
