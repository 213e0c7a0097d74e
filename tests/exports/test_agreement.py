"""The model, its folder, ONNX Runtime and torch.export predict the same for the same raw rows."""

import os
from pathlib import Path

import numpy as np
import onnxruntime
import pyarrow as pa
import pytest
import torch
from numpy.typing import NDArray

from fieldwise.core.mask import Mask
from fieldwise.core.registry import resolve
from fieldwise.core.schema import Schema
from fieldwise.exports.folder import export, load
from fieldwise.exports.inputs import feeds
from fieldwise.exports.onnx import ids_to_onnx, to_onnx
from fieldwise.exports.predictor import Predictor, Probability
from fieldwise.exports.program import export_program, to_pt2
from fieldwise.models import MODELS
from fieldwise.models.autoint import AutoInt
from fieldwise.models.compact import compact
from fieldwise.models.factory import Build
from fieldwise.models.model import CTRModel
from tests.exports.cases import SMALL, Case, avazu, criteo, movielens, shaken
from tests.models.factories import FACTORIES
from tests.models.factory_models import mask_for, model_of

TOLERANCE = 1e-5
"""Maximum difference of probabilities."""
DATA = Path(os.environ.get("FIELDWISE_DATA", "no-such-folder"))
REAL = {"ml-1m.zip": movielens, "criteo_sample.txt.gz": criteo, "avazu_sample.csv.gz": avazu}
"""Files of real rows; all are optional."""


def run_onnx(path: Path, predictor: Predictor, rows: pa.Table) -> NDArray[np.float32]:
    session = onnxruntime.InferenceSession(path)
    (found,) = session.run(None, feeds(predictor.encoder, rows))
    return np.asarray(found)


def agree(case: Case, name: str, folder: Path) -> None:
    if name in MODELS:
        all_forms_agree(case, *shaken(resolve("model", MODELS, name)(), case.data), folder)
        return
    full = model_of(FACTORIES[name], case.data.schema)
    all_forms_agree(case, compact(full, mask_for(full)).eval(), None, folder, FACTORIES[name])


def all_forms_agree(case: Case, model: CTRModel, mask: Mask | None, folder: Path, build: Build | None = None) -> None:
    assert 0 in model.layout.widths
    ids = case.data.encoder.encode(case.rows)
    assert (ids == 0).any(), "no unseen value"
    expected = torch.sigmoid(model(torch.from_numpy(ids))).detach().numpy()
    assert expected.std() > 0.005
    export(model, folder / "model", case.data.encoder, mask)
    predictor = load(folder / "model", model=build)
    np.testing.assert_allclose(predictor.predict(case.rows), expected, atol=TOLERANCE, rtol=0)
    to_onnx(predictor, folder / "model.onnx")
    to_pt2(predictor, folder / "model.pt2")
    program = torch.export.load(folder / "model.pt2").module()
    for count in (len(case.rows), 1):
        rows = case.rows.slice(0, count)
        np.testing.assert_allclose(
            run_onnx(folder / "model.onnx", predictor, rows), expected[:count], atol=TOLERANCE, rtol=0
        )
        needed = torch.from_numpy(predictor.encoder.encode(rows))
        np.testing.assert_allclose(program(needed).detach().numpy(), expected[:count], atol=TOLERANCE, rtol=0)


PAIRS = [("avazu", "dcnv2"), ("tiers", "fm"), *(("awkward", name) for name in (*MODELS, "deep", "named"))]
"""Every rule and every model, two of factories among them, and two tiers of one column. The others repeat rules of
these over more fields, whose graphs take long to write."""


@pytest.mark.parametrize(
    ("rows", "name"),
    [
        pytest.param(rows, name, marks=() if (rows, name) in PAIRS else pytest.mark.slow)
        for rows in (*SMALL, "movielens")
        for name in (*MODELS, "deep", "named")
    ],
)
def test_all_forms_agree(rows: str, name: str, tmp_path: Path, movielens_zip: Path) -> None:
    agree(movielens(movielens_zip, tmp_path) if rows == "movielens" else SMALL[rows](tmp_path), name, tmp_path)


@pytest.mark.parametrize("fields", [7, 20])
def test_a_program_of_autoint_has_no_layers_of_training_steps(fields: int, tmp_path: Path) -> None:
    """With few and many fields: the program is that of plain operations, for any number of rows."""
    torch.manual_seed(0)
    model = AutoInt().new(Schema.of(**{f"f{j}": 9 for j in range(fields)})).eval()
    probability, ids = Probability(model), torch.randint(9, (11, fields), dtype=torch.int32)
    assert torch.is_grad_enabled()
    program = export_program(probability)
    assert {"softmax.int", "linear.default"} < {str(node.target).removeprefix("aten.") for node in program.graph.nodes}
    ids_to_onnx(probability, tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    for count in (11, 1):
        with torch.no_grad():
            expected = probability(ids[:count])
        assert torch.equal(program.module()(ids[:count]), expected)
        (found,) = session.run(None, {session.get_inputs()[0].name: ids[:count].numpy()})
        np.testing.assert_allclose(found, expected, atol=TOLERANCE, rtol=0)


@pytest.mark.slow
@pytest.mark.parametrize("file", REAL)
def test_all_forms_agree_on_real_rows(file: str, tmp_path: Path) -> None:
    if not (DATA / file).exists():
        pytest.skip(f"set FIELDWISE_DATA to a folder with {file} to run this")
    case = REAL[file](DATA / file, tmp_path)
    for name in MODELS:
        (tmp_path / name).mkdir()
        agree(case, name, tmp_path / name)
