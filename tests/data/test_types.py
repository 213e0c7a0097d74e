"""Values of another type than in training get the same id if the conversion is exact."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fieldwise.data.engines.duckdb import DuckDB
from fieldwise.data.engines.spark import Spark
from fieldwise.data.prepare import prepare
from fieldwise.data.rules import Rule
from fieldwise.data.split import ColumnSplit
from fieldwise.data.store import Dataset
from fieldwise.data.table import Table
from fieldwise.data.vocabulary import Vocabulary
from tests.data.small_files import assert_same_dataset, quiet, spark

HASHES = [0, 7, 2**53 + 1, 2**63 - 1, 2**63, 2**63 + 1, 2**64 - 1]


def ids(known: list[Any], new: Any, kind: Any = None) -> list[int]:
    """Encodes new values with a vocabulary of known ones."""
    vocabulary = Vocabulary(pa.array(known, kind), pa.array([1] * len(known)))
    found: list[int] = vocabulary.encode(Rule().apply(new if isinstance(new, pa.Array) else pa.array(new))).tolist()
    return found


def test_whole_numbers_are_known_in_every_type() -> None:
    known = [17, None, 0, -3]
    assert ids(known, [17.0, 0.0, -3.0, None, 17.5, 1e300]) == [1, 3, 4, 2, 0, 0]
    assert ids(known, pa.array([17, 0, None], pa.uint8())) == [1, 3, 2]
    text = ["17", "17.0", "17.00", "0", "-3", "-3.0", None]
    assert ids(known, text) == [1, 1, 1, 3, 4, 4, 2]
    assert ids(known, ["017", "+17", " 17", "17.5", "-0", "", "x", "99999999999999999999"]) == [0] * 8


def test_whole_numbers_are_known_as_the_text_of_training() -> None:
    assert ids(["17", "0", None], [17.0, 0.0, None, 17.5]) == [1, 2, 3, 0]
    assert ids(["17.0", "0.0", None], [17, 0, None, 1]) == [1, 2, 3, 0]
    assert ids(["17.0", "0.5", "1e-05"], [17.0, 0.5, 1e-05]) == [1, 2, 3]
    assert ids(["17", "0"], ["17.0", "0.0", "17.00", "17.5", "017"]) == [1, 2, 0, 0, 0]
    assert ids(["17.0", "0.0", None], ["17", "0", "017", None]) == [1, 2, 0, 3]
    assert ids(["1e+16", "10000000000000000"], [1e16]) == [2]


def test_text_that_only_looks_alike_stays_apart() -> None:
    assert ids(["07", "7", "7.0"], ["7", "07", "7.0", "7.00"]) == [2, 1, 3, 0]
    assert ids(["07", "08"], [7, 8]) == [0, 0]
    assert ids(["07", "08"], [7.0, 8.0]) == [0, 0]
    assert ids(["17", "x"], ["17.0"]) == [0]
    assert ids(["true", "north"], ["True"]) == [0]
    assert ids(["true", "True"], ["TRUE", "true"]) == [0, 1]


def test_truth_values_are_known_however_they_are_written() -> None:
    for known in (["True", "False", None], ["true", "false", None], ["TRUE", "FALSE", None]):
        assert ids(known, [True, False, None]) == [1, 2, 3]
        assert ids(known, ["true", "False", "FALSE", None, "yes"]) == [1, 2, 2, 3, 0]
    assert ids(["True"], [True, False]) == [1, 0]


def test_broken_numbers_are_known_as_text_and_no_number_is_none() -> None:
    known = [0.5, None, 2.0]
    assert ids(known, ["0.5", "2", "2.0", "5e-1", " 2 ", "x", "", None]) == [1, 3, 3, 1, 3, 0, 2, 2]
    assert ids(known, [2, None]) == [3, 2]


@pytest.mark.parametrize("null", [[], [None]])
def test_nan_is_null(null: list[None]) -> None:
    for known in ([0.5, *null], [1, *null], ["0.5", *null]):
        assert ids(known, pa.array([float("nan"), None])) == [2 if null else 0] * 2


def test_nan_in_vocabularies_of_older_folders_is_null(tmp_path: Path) -> None:
    Vocabulary(pa.array([0.5, float("nan")]), pa.array([2, 1])).save(tmp_path / "v.parquet")
    assert Vocabulary.load(tmp_path / "v.parquet").encode(pa.array([None, 0.5])).tolist() == [2, 1]


def frame() -> pd.DataFrame:
    draw, rows = np.random.default_rng(0), 800
    return pd.DataFrame({
        "member": draw.random(rows) < 0.5,
        "shop": np.where(draw.random(rows) < 0.1, np.nan, draw.integers(0, 9, rows)),
        "item": draw.integers(0, 9, rows),
        "hash": draw.choice(np.asarray(HASHES, np.uint64), rows),
        "at": pd.Timestamp("2024-06-01") + pd.to_timedelta(draw.integers(0, 9, rows), unit="D"),
        "part": np.where(np.arange(rows) % 5 < 3, "train", np.where(np.arange(rows) % 5 == 3, "valid", "test")),
        "click": draw.integers(0, 2, rows),
    })  # fmt: skip


def trained(rows: pd.DataFrame, raw: Path, folder: Path) -> Dataset:
    if raw.suffix == ".csv":
        rows.to_csv(raw, index=False)
    else:
        rows.to_parquet(raw)
    fields = {name: Rule() for name in ("member", "shop", "item", "hash", "at")}
    return prepare(Table(raw=raw, label="click", fields=fields), folder, ColumnSplit(column="part"))


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_frame_its_csv_and_its_parquet_have_the_same_ids(tmp_path: Path, ending: str) -> None:
    rows = frame()
    data = trained(rows, tmp_path / f"raw.{ending}", tmp_path / "data")
    train = rows[rows["part"] == "train"]
    assert (data.train.ids[:] > 0).all()
    train.to_parquet(tmp_path / "new.parquet")
    text = pd.read_csv(io.StringIO(train.to_csv(index=False)), dtype=str)
    for new in (train, text, pq.read_table(tmp_path / "new.parquet"), train.assign(item=train["item"].astype(float))):
        assert np.array_equal(data.encoder.encode(new), data.train.ids)


def test_bins_of_large_whole_numbers_do_not_turn_negative() -> None:
    rule = Rule(kind="log-squared")
    numbers = pa.array(HASHES, pa.uint64())
    assert rule.apply(numbers).to_pylist() == rule.apply(numbers.cast(pa.string())).to_pylist()
    assert min(rule.apply(numbers).to_pylist()[2:]) > 1000


@spark
@quiet
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_spark_and_duckdb_read_large_whole_numbers_alike(tmp_path: Path) -> None:
    frame().drop(columns=["at"]).to_parquet(tmp_path / "raw.parquet")
    fields = {"shop": Rule(), "hash": Rule(), "bins": Rule(column="hash", kind="log-squared")}
    source = Table(raw=tmp_path / "raw.parquet", label="click", fields=fields)
    assert_same_dataset(source, tmp_path, [DuckDB(), Spark(master="local[2]", memory=1024)], ColumnSplit(column="part"))
