"""The files that `fieldwise export` writes."""

import json
from pathlib import Path

import numpy as np
import onnxruntime
import pyarrow as pa
import pytest
from safetensors.torch import load_file

from fieldwise.cli.serve import Target
from fieldwise.core.errors import SettingsError
from fieldwise.core.mask import Mask
from fieldwise.core.schema import Field, Layout, Schema
from fieldwise.data.encoder import Encoder
from fieldwise.data.field_encoder import FieldEncoder
from fieldwise.data.rules import Rule
from fieldwise.data.vocabulary import Vocabulary
from fieldwise.exports.folder import export, load
from fieldwise.exports.inputs import feeds
from fieldwise.exports.targets import export_to
from fieldwise.models.compact import compact
from fieldwise.models.dcnv2 import DCNv2
from fieldwise.models.fm import FM
from tests.command_line import cli, small_disk
from tests.exports import protobuf
from tests.exports.cases import Case
from tests.models.factories import named
from tests.models.factory_models import mask_for, model_of

SCHEMA = Schema((Field("user.id", 50), Field('a "b"', 3), Field("tags", 6, length=2), Field("gone", 9)))
LAYOUT = Layout(SCHEMA, (5, 3, 4, 0))


@pytest.fixture
def model(tmp_path: Path) -> Path:
    export(FM(common=7).build(LAYOUT), tmp_path / "model", mask=Mask.all(LAYOUT))
    return tmp_path / "model"


def test_widths_as_json_say_what_alignment_wastes(model: Path, tmp_path: Path) -> None:
    raw = export_to("json", model, tmp_path / "out").tables
    assert raw is not None
    assert (raw.raw, raw.aligned, raw.waste) == (283, 283, 0)
    (path,) = export_to("json", model, tmp_path / "out", align=4).paths
    assert json.loads(path.read_text()) == {
        "format": "fieldwise-widths/1",
        "align": 4,
        "numbers": {"raw": 5 * 50 + 9 + 24, "aligned": 8 * 50 + 12 + 24, "waste": 1 - 283 / 436},
        "common": 7,
        "fields": [
            {"name": "user.id", "cardinality": 50, "length": 1, "width": 5, "aligned": 8},
            {"name": 'a "b"', "cardinality": 3, "length": 1, "width": 3, "aligned": 4},
            {"name": "tags", "cardinality": 6, "length": 2, "width": 4, "aligned": 4},
        ],
        "dropped": ["gone"],
    }


def test_fuxictr_gets_projections_for_models_that_need_them(model: Path, tmp_path: Path) -> None:
    flat, lifted = (json.loads(p.read_text()) for p in export_to("fuxictr", model, tmp_path / "out").paths)
    assert flat["use_features"] == lifted["use_features"] == ["user.id", 'a "b"', "tags"]
    assert flat["feature_specs"][0] == {"name": "user.id", "embedding_dim": 5}
    assert flat["feature_specs"][2]["feature_encoder"] == ["layers.MaskedAveragePooling()"]
    assert lifted["feature_specs"][0] == {
        "name": "user.id", "embedding_dim": 5, "emb_output_dim": 7, "feature_encoder": ["nn.Linear(5, 7, bias=False)"],
    }  # fmt: skip
    export(DCNv2().build(LAYOUT), tmp_path / "flat")
    assert [p.name for p in export_to("fuxictr", tmp_path / "flat", tmp_path / "o").paths] == ["fuxictr_flat.json"]


def test_deepctr_gets_a_list(model: Path, tmp_path: Path) -> None:
    (path,) = export_to("deepctr", model, tmp_path / "out").paths
    tags = {"name": "tags", "vocabulary_size": 6, "embedding_dim": 4}
    assert json.loads(path.read_text()) == {
        "sparse": [
            {"name": "user.id", "vocabulary_size": 50, "embedding_dim": 5},
            {"name": 'a "b"', "vocabulary_size": 3, "embedding_dim": 3},
        ],
        "several": [{"sparsefeat": tags, "maxlen": 2, "combiner": "mean"}],
    }


def test_torcheasyrec_gets_feature_configs(model: Path, tmp_path: Path) -> None:
    (path,) = export_to("torcheasyrec", model, tmp_path / "out", align=8).paths
    found = protobuf.read(path.read_text(), protobuf.TORCHEASYREC).feature_configs
    parsed = [(f.id_feature.feature_name, f.id_feature.num_buckets, f.id_feature.embedding_dim) for f in found]
    assert parsed == [("user.id", 50, 8), ('a "b"', 3, 8), ("tags", 6, 8)]
    assert {f.id_feature.pooling for f in found} == {"mean"}


def test_torchrec_gets_tables_and_projections_padded_with_zeros(model: Path, tmp_path: Path) -> None:
    config, weights = export_to("torchrec", model, tmp_path / "out", align=4).paths
    tables = json.loads(config.read_text())["tables"]
    assert tables[0] == {
        "name": "user_id", "embedding_dim": 8, "num_embeddings": 50, "feature_names": ["user.id"], "pooling": "MEAN",
    }  # fmt: skip
    assert [table["name"] for table in tables] == ["user_id", "a__b_", "tags"]
    stored, whole = load_file(weights), load(model).model
    for j, table in enumerate(tables):
        found = stored[f"embedding_bags.{table['name']}.weight"]
        width = LAYOUT.widths[j]
        assert found.shape == (table["num_embeddings"], table["embedding_dim"])
        assert found[:, :width].equal(whole.embedding.table(j).detach())
        assert not found[:, width:].any()
        lift = stored[f"projections.{table['name']}.weight"]
        own = whole.state_dict()["head.lift.weight"][LAYOUT.starts[j] : LAYOUT.starts[j + 1]]
        assert lift[:, :width].equal(own.T)
        assert not lift[:, width:].any()


def test_triton_gets_a_repository_that_runs(case: Case, served: Path, tmp_path: Path) -> None:
    config, graph = export_to("triton", served, tmp_path / "repository").paths
    assert config == tmp_path / "repository" / "model" / "config.pbtxt"
    assert graph == tmp_path / "repository" / "model" / "1" / "model.onnx"
    parsed = protobuf.read(config.read_text(), protobuf.TRITON)
    assert (parsed.name, parsed.platform, parsed.max_batch_size) == ("model", "onnxruntime_onnx", 4096)
    assert parsed.HasField("dynamic_batching")
    session = onnxruntime.InferenceSession(graph)
    kinds = {1: "tensor(string)", 2: "tensor(int64)", 3: "tensor(double)"}
    assert {t.name: kinds[t.data_type] for t in parsed.input} == {i.name: i.type for i in session.get_inputs()}
    assert all(list(t.dims) == [1] and t.HasField("reshape") and not t.reshape.shape for t in parsed.input)
    assert [(t.name, t.data_type) for t in parsed.output] == [("probability", 4)]
    (found,) = session.run(None, feeds(load(served).encoder, case.rows))
    np.testing.assert_allclose(np.asarray(found), load(served).predict(case.rows), atol=1e-5)


def test_triton_gets_a_factorys_model_too(case: Case, tmp_path: Path) -> None:
    model = model_of(named, case.data.schema)
    export(compact(model, mask_for(model)), tmp_path / "mine", case.data.encoder)
    config, graph = export_to("triton", tmp_path / "mine", tmp_path / "out", cls=named).paths
    assert config == tmp_path / "out" / "mine" / "config.pbtxt"
    parsed, session = protobuf.read(config.read_text(), protobuf.TRITON), onnxruntime.InferenceSession(graph)
    assert {t.name for t in parsed.input} == {i.name for i in session.get_inputs()}
    predictor = load(tmp_path / "mine", model=named)
    (found,) = session.run(None, feeds(predictor.encoder, case.rows))
    np.testing.assert_allclose(np.asarray(found), predictor.predict(case.rows), atol=1e-5)


def test_triton_makes_no_batches_of_lists(tmp_path: Path) -> None:
    values = Vocabulary(pa.array([1, 2, 3, 4, 5], pa.int64()), pa.array([1] * 5))
    encoder = Encoder([FieldEncoder("tags", Rule(), values, length=2, several=True)])
    export(DCNv2().build(Schema((Field("tags", 6, 2),)).layout(4)), tmp_path / "m", encoder)
    config, _ = export_to("triton", tmp_path / "m", tmp_path / "out").paths
    parsed = protobuf.read(config.read_text(), protobuf.TRITON)
    assert parsed.max_batch_size == 0
    assert {t.name: list(t.dims) for t in parsed.input} == {"tags": [-1, -1], "tags.length": [-1]}


def test_every_target_of_the_command_line_is_written(served: Path, tmp_path: Path) -> None:
    names = sorted(path.name for target in Target for path in export_to(target, served, tmp_path / target).paths)
    assert names == [
        "config.pbtxt", "deepctr.json", "folder", "fuxictr_flat.json", "model.onnx", "model.onnx", "model.pt2",
        "torcheasyrec.config", "torchrec.json", "torchrec.safetensors", "widths.json",
    ]  # fmt: skip
    assert not [path for path in tmp_path.rglob("*") if "partial" in path.name]


def test_graphs_are_not_aligned(served: Path, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"^align=4 does not apply to"):
        export_to("onnx", served, tmp_path / "out", align=4)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("target", ["onnx", "pt2", "torchrec"])
def test_a_disk_that_fills_up_leaves_nothing(served: Path, tmp_path: Path, target: str) -> None:
    with small_disk(600):
        result = cli("export", served, "--to", target, "-o", tmp_path / "out")
    assert result.returncode == 2, result.stderr
    assert f"No room left at '{tmp_path / 'out'}'" in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_the_command_shows_tables_and_waste(model: Path, tmp_path: Path) -> None:
    result = cli("export", model, "--to", "torchrec", "--align", "4", "-o", tmp_path / "out")
    assert result.returncode == 0, result.stderr
    assert (
        "283 numbers raw, 436 aligned to 4: 35.1% of those are padding. Fields without a table: gone." in result.stdout
    )
    assert f"Written: {tmp_path / 'out' / 'torchrec.json'}" in result.stdout
    wrong = cli("export", model, "--to", "onnx", "-o", tmp_path / "out")
    assert wrong.returncode == 2
    assert "exported without vocabularies" in wrong.stderr
    assert len(wrong.stderr.strip().splitlines()) == 1
