"""Rows in memory: dataframes, dicts of columns, lists of dicts, one row; and what of them is refused."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch

import fieldwise as fw
from fieldwise.core.errors import DataError
from fieldwise.data.store import Dataset

ROWS = [
    {"user": f"u{i % 20}", "price": float(i % 31) * 1.5, "tags": [f"t{i % 4}", f"t{i % 3}"], "click": i * 7 % 5 % 2}
    for i in range(400)
]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return fw.prepare(fw.data.Frame(frame=ROWS, label="click"), tmp_path_factory.mktemp("data") / "rows")


def columns(rows: list[dict[str, Any]]) -> dict[str, list[Any]]:
    return {name: [row[name] for row in rows] for name in rows[0]}


def test_a_frame_may_be_a_list_of_dicts_or_a_dict_of_columns(data: Dataset, tmp_path: Path) -> None:
    others = {"columns": columns(ROWS), "arrow": pa.Table.from_pylist(ROWS), "pandas": pd.DataFrame(ROWS)}
    for name, frame in others.items():
        other = fw.prepare(fw.data.Frame(frame=frame, label="click"), tmp_path / name)
        assert other.fingerprint == data.fingerprint, name


def test_rows_are_predicted_alike_in_every_form(data: Dataset) -> None:
    predictor = fw.Predictor(fw.models.FM(width=2).build(data.schema.layout(2)), data.encoder)
    expected = predictor.predict(pd.DataFrame(ROWS[:9]))
    assert len(set(expected)) > 1
    for rows in (ROWS[:9], tuple(ROWS[:9]), columns(ROWS[:9]), pa.Table.from_pylist(ROWS[:9])):
        np.testing.assert_array_equal(predictor.predict(rows), expected)
    np.testing.assert_array_equal([predictor.predict(row)[0] for row in ROWS[:9]], expected)
    scalars = {"user": np.str_("u0"), "price": np.float64(0), "tags": np.asarray(["t0", "t0"])}
    np.testing.assert_array_equal(predictor.predict(scalars), expected[:1])
    assert predictor.predict([]).shape == (0,)


def test_one_row_may_hold_null_and_a_list_may_lack_keys(data: Dataset) -> None:
    whole = [{"user": None, "price": 1.5, "tags": None}, {"user": "u1", "price": None, "tags": ["t1"]}]
    expected = data.encoder.encode(pa.Table.from_pylist(whole))
    np.testing.assert_array_equal(data.encoder.encode([{"price": 1.5}, {"user": "u1", "tags": ["t1"]}]), expected)
    np.testing.assert_array_equal(data.encoder.encode(whole[0]), expected[:1])


def test_a_dict_whose_fields_all_have_several_values_is_of_columns(tmp_path: Path) -> None:
    data = fw.prepare(fw.data.Frame(frame=ROWS, label="click", only=("tags",)), tmp_path / "tags")
    assert len(data.encoder.encode({"tags": [["t1"], ["t2", "t3"]]})) == 2
    assert len(data.encoder.encode([{"tags": ["t2", "t3"]}])) == 1


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ({"user": "u1", "price": [1.0, 2.0], "tags": []}, "holds one value in 'user' and several in 'price'"),
        ([{"user": "u1"}], "Rows lack the columns price, tags"),
        ([{"user": "u1"}, 3], "Rows hold a int: 3"),
        ({"user": ["u1", 3], "price": [1, 2], "tags": [[], []]}, "Column 'user' cannot be read"),
        (3, "Rows of type int have no Arrow stream. Allowed: pandas"),
        (np.zeros((2, 3)), "Rows of type ndarray have no Arrow stream"),
        (pd.DataFrame({"user": ["u1", 3], "price": 1.0, "tags": "t1"}), "Conversion failed for column user"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_rows_that_are_none_are_named(rows: Any, says: str, data: Dataset) -> None:
    with pytest.raises(DataError, match=re.escape(says)) as error:
        data.encoder.encode(rows)
    assert len(str(error.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("column", "says"),
    [
        ([{"a": 1}] * 60, "Column 'x' holds struct<a: int64>. Allowed: text, numbers, times, and lists of them."),
        ([b"a", b"b"] * 30, "Column 'x' holds binary"),
        (pd.cut(np.arange(60), 5), "Column 'x' holds dictionary<values=extension<pandas.interval"),
        ([1, "a"] * 30, "Conversion failed for column x with type object"),
        ([1j] * 60, "Conversion failed for column x with type complex128"),
    ],
    ids=["dict", "bytes", "interval", "mixed", "complex"],
)
def test_a_column_that_is_no_field_is_named_at_prepare(column: Any, says: str, tmp_path: Path) -> None:
    frame = pd.DataFrame({"click": [0, 1] * 30, "user": ["u1", "u2", "u3"] * 20, "x": column})
    with pytest.raises(DataError, match=re.escape(says)):
        fw.prepare(fw.data.Frame(frame=frame, label="click"), tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("values", [[1, 2, 3], ["a", "b", "?"], [0.5, 1.5, 2.5]], ids=["integers", "text", "floats"])
def test_a_column_of_categories_is_the_column_of_its_values(values: list[Any], tmp_path: Path) -> None:
    plain = pd.DataFrame({"click": np.arange(120) // 7 % 2, "user": ["u1", "u2", "u3", "u4"] * 30, "x": values * 40})
    frames = {"plain": plain, "categories": plain.assign(x=pd.Categorical(plain["x"]))}
    data = {
        name: fw.prepare(fw.data.Frame(frame=frame, label="click"), tmp_path / name) for name, frame in frames.items()
    }
    assert data["plain"].schema.names == ("user", "x")
    assert data["plain"].fingerprint == data["categories"].fingerprint
    rows = frames["categories"].head(9)
    np.testing.assert_array_equal(data["plain"].encoder.encode(rows), data["plain"].encoder.encode(plain.head(9)))


@pytest.mark.parametrize("label", [0, 1, 1.0, True])
def test_a_label_of_one_class_is_named_with_its_value(label: float, tmp_path: Path) -> None:
    frame = pd.DataFrame({"click": [label] * 60, "user": ["u1", "u2", "u3"] * 20})
    says = rf"Label 'click' is {str(label).lower()} in all 60 rows. Allowed: rows with and without a click"
    with pytest.raises(DataError, match=says):
        fw.prepare(fw.data.Frame(frame=frame, label="click"), tmp_path / "out")


@pytest.mark.parametrize("many", [5, 200])
def test_infinite_numbers_are_in_the_outer_bins(many: int, tmp_path: Path) -> None:
    numbers = np.random.default_rng(0).normal(size=600)
    numbers[:many], numbers[many : 2 * many] = np.inf, -np.inf
    frame = pd.DataFrame({"click": np.arange(600) % 2, "x": numbers})
    data = fw.prepare(
        fw.data.Frame(frame=frame, label="click", fields={"x": fw.Rule(kind="quantile")}), tmp_path / "out"
    )
    edges = data.encoder.fields[0].rule.edges
    assert np.isfinite(edges).all()
    ids = data.encoder.encode({"x": [np.inf, 1e300, -np.inf, -1e300]})[:, 0]
    assert ids[0] == ids[1] != ids[2] == ids[3]
    assert min(ids) > 0, "known"


def test_a_predictor_of_a_model_without_some_fields_reads_the_others(data: Dataset, tmp_path: Path) -> None:
    full = fw.models.DCNv2(width=2, hidden=(4,)).build(data.schema.layout(2)).eval()
    mask = fw.Mask(full.layout, ((), (0, 1), (0,)))
    small = fw.compact(full, mask)
    assert small.needs == ("price", "tags")
    expected = torch.sigmoid(full(torch.from_numpy(data.encoder.encode(ROWS[:9])), torch.from_numpy(mask.vector)))
    predictor = fw.Predictor(small, data.encoder)
    np.testing.assert_allclose(predictor.predict(ROWS[:9]), expected.detach().numpy(), rtol=1e-5)
    assert predictor.columns == ("price", "tags")
    fw.export(small, tmp_path / "model", predictor.encoder, mask)
    np.testing.assert_array_equal(fw.load(tmp_path / "model").predict(ROWS[:9]), predictor.predict(ROWS[:9]))
    with pytest.raises(DataError, match="The encoder's fields differ from the model's"):
        fw.Predictor(full, predictor.encoder)
