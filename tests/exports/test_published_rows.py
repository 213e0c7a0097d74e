"""Rows in files as they are published: predictions are those of the same rows in a plain file."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.csv as csv
import pytest
import torch
from numpy.typing import NDArray

from fieldwise.data.prepare import prepare
from fieldwise.data.store import Dataset
from fieldwise.exports.folder import export, load
from fieldwise.exports.predict import predict_file
from fieldwise.exports.predictor import Predictor
from fieldwise.models.dcnv2 import DCNv2
from tests.command_line import cli
from tests.data.published_files import FORMS, NAMES, cells, plain, table, text, written
from tests.exports.cases import shaken


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a model over the rows of the plain file, which lies next to it."""
    torch.manual_seed(0)
    found = tmp_path_factory.mktemp("published")
    data: Dataset = prepare(table(plain(found)), found / "data")
    model, mask = shaken(DCNv2(width=4), data)
    export(model, found / "model", data.encoder, mask)
    return found


@pytest.fixture(scope="module")
def model(folder: Path) -> Predictor:
    return load(folder / "model")


def predicted(model: Predictor, raw: Any, out: Path, **reading: Any) -> NDArray[Any]:
    assert predict_file(model, raw, out, **reading) == len(cells())
    return np.asarray(csv.read_csv(out)["probability"])


@pytest.mark.parametrize("form", FORMS)
def test_predictions_are_those_of_the_plain_file(form: str, folder: Path, model: Predictor, tmp_path: Path) -> None:
    expected = predicted(model, folder / "plain.csv", tmp_path / "plain.csv")
    assert len(np.unique(expected)) > 20
    write, _, reading = FORMS[form]
    found = predicted(model, write(tmp_path), tmp_path / "p.csv", **reading)
    np.testing.assert_allclose(found, expected, atol=1e-6)  # batches of other sizes round differently


def test_the_command_line_names_columns_and_encodings(folder: Path, model: Predictor, tmp_path: Path) -> None:
    raw = written(tmp_path / "bare.csv", text(cells(), header=(), delimiter=";").encode("latin-1"))
    names = ",".join(NAMES)
    given = ("--source", "table", "--raw", raw, "--label", "click", "--header", names)
    made = cli("prepare", *given, "--set", "data.encoding=latin-1", "--out", tmp_path / "data")
    assert made.returncode == 0, made.stderr
    wrong = cli("prepare", *given, "--out", tmp_path / "other")
    assert (wrong.returncode, len(wrong.stderr.splitlines())) == (2, 1)
    assert "is not UTF-8 text" in wrong.stderr
    assert "--set data.encoding=latin-1" in wrong.stderr
    bare = cli("prepare", *given[:-2], "--set", "data.encoding=latin-1", "--out", tmp_path / "other")
    assert (bare.returncode, len(bare.stderr.splitlines())) == (2, 1)
    reading = ("--header", names, "--encoding", "latin-1", "--delimiter", ";")
    out = cli("predict", folder / "model", raw, "-o", tmp_path / "p.csv", *reading)
    assert out.returncode == 0, out.stderr
    expected = predicted(model, folder / "plain.csv", tmp_path / "plain.csv")
    assert np.array_equal(np.asarray(csv.read_csv(tmp_path / "p.csv")["probability"]), expected)
