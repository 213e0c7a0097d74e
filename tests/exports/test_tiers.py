"""A model with tiers serves raw rows: one raw column is one input, and every form of serving predicts the same."""

import json
from pathlib import Path

import numpy as np
import onnxruntime
import pyarrow as pa
import pytest
import torch

from fieldwise.core.mask import Mask
from fieldwise.exports.folder import export, load
from fieldwise.exports.inputs import feeds, inputs_of
from fieldwise.exports.onnx import to_onnx
from fieldwise.exports.predict import predict_file
from fieldwise.exports.predictor import Predictor
from fieldwise.exports.targets import export_to
from fieldwise.models.compact import compact
from fieldwise.models.dcnv2 import DCNv2
from fieldwise.models.fm import FM
from tests.exports import protobuf
from tests.exports.cases import Case, tiers
from tests.small_models import trained

KEPT = ((0, 1, 2), (2,), (0, 3), (1, 2), ())
"""Columns of user:frequent, user:middle, user:rare, item:frequent and item:rare."""
ROWS = pa.table({"user": ["3.0", "90.0", "never", None, "3", "30.0"], "item": [4, 95, -1, None, 4, 4]})
"""A frequent, a rare, an unseen and no value; the first in another spelling; and one of the middle."""


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    return tiers(tmp_path_factory.mktemp("tiers"))


@pytest.fixture(scope="module")
def folder(case: Case, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a compact FM; its predictions are those of the masked model."""
    torch.manual_seed(0)
    out = tmp_path_factory.mktemp("served") / "model"
    layout = case.data.schema.layout(4)
    mask, full = Mask(layout, KEPT), trained(FM(width=4), layout)
    small = compact(full, mask, drop_first_order=True)
    ids = torch.from_numpy(np.asarray(case.data.test.ids))
    torch.testing.assert_close(
        compact(full, mask)(ids), full(ids, torch.from_numpy(mask.vector).float()), atol=1e-5, rtol=1e-5
    )
    export(small, out, case.data.encoder, mask)
    return out


@pytest.fixture(scope="module")
def predictor(folder: Path) -> Predictor:
    return load(folder)


def test_the_graph_reads_every_column_once_and_predicts_as_the_predictor(predictor: Predictor, tmp_path: Path) -> None:
    ids = predictor.encoder.encode(ROWS)
    assert [np.flatnonzero(row).tolist() for row in ids[:, :3]] == [[0], [2], [], [0], [0], [1]]
    assert ids[0].tolist() == ids[4].tolist()
    assert predictor.columns == ("user", "item")
    assert [entry.name for entry in inputs_of(predictor.encoder)] == ["user"] * 3 + ["item"] * 2
    to_onnx(predictor, tmp_path / "m.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx")
    assert sorted(value.name for value in session.get_inputs()) == ["item", "user"]
    numbers = pa.table({"user": [3, 90, 1_000, None, 3, 30], "item": ["4", "95", "-1", None, "4.0", "4"]})
    for rows in (ROWS, numbers):
        (found,) = session.run(None, feeds(predictor.encoder, rows))
        np.testing.assert_allclose(np.asarray(found), predictor.predict(ROWS), atol=1e-6, rtol=0)
        np.testing.assert_array_equal(predictor.predict(rows), predictor.predict(ROWS))


def test_a_value_of_a_tier_without_columns_is_not_unknown(case: Case, folder: Path, tmp_path: Path) -> None:
    """Its ids are needed although it has no table: otherwise a rare value would read the first tier's `unknown`."""
    for settings in (FM(width=4), DCNv2(width=4, hidden=(4,))):
        torch.manual_seed(0)
        layout = settings.layout(case.data.schema)
        small = compact(trained(settings, layout), Mask(layout, KEPT), drop_first_order=True)
        assert small.needs == case.data.schema.names
        export(small, tmp_path / type(settings).__name__, case.data.encoder)
        found = load(tmp_path / type(settings).__name__).predict(case.rows)
        ids = torch.from_numpy(case.data.encoder.encode(case.rows))
        assert (ids[:, 4] > 0).any(), "values of item:rare"
        with torch.no_grad():
            np.testing.assert_allclose(found, torch.sigmoid(small(ids)).numpy(), atol=1e-6, rtol=0)
    without = Mask(layout, ((0,), (1,), (2,), (), (1,)))
    assert "item:frequent" not in compact(trained(settings, layout), without, drop_first_order=True).needs


def test_files_are_predicted_from_the_raw_columns(predictor: Predictor, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("user,item\n3.0,4\n90.0,95\nnever,-1\n,\n3,4\n30.0,4\n")
    assert predict_file(predictor, tmp_path / "rows.csv", tmp_path / "out.csv") == 6
    found = np.array([float(line) for line in (tmp_path / "out.csv").read_text().split()[1:]])
    np.testing.assert_allclose(found, predictor.predict(ROWS), atol=1e-6, rtol=0)


def test_other_libraries_get_a_table_per_tier(folder: Path, tmp_path: Path) -> None:
    for name in ("json", "torchrec", "torcheasyrec"):
        export_to(name, folder, tmp_path)
    text = (tmp_path / "torcheasyrec.config").read_text()
    features = [config.id_feature for config in protobuf.read(text, protobuf.TORCHEASYREC).feature_configs]
    assert [feature.expression for feature in features] == [
        "user:user_frequent",
        "user:user_middle",
        "user:user_rare",
        "user:item_frequent",
    ]
    widths = json.loads((tmp_path / "widths.json").read_text())
    assert widths["dropped"] == ["item:rare"]
    assert [entry["shared"] for entry in widths["fields"]] == [[0, 1, 2], [2], [0, 3], [0, 1]], "positions of KEPT"
    assert '"name": "user_frequent"' in (tmp_path / "torchrec.json").read_text()
