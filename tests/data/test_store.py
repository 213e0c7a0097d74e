"""Dataset folders from untrusted sources: arrays, vocabularies and `dataset.json`."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fieldwise.core.errors import DataError
from fieldwise.data.prepare import prepare
from fieldwise.data.rules import Rule
from fieldwise.data.store import Dataset
from fieldwise.data.table import Table
from fieldwise.data.vocabulary import Vocabulary

Change = Callable[[Path], None]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    lines = [f"{i % 2},u{i % 7},{'|'.join(f'g{j}' for j in range(1 + i % 3))}" for i in range(400)]
    (folder / "rows.csv").write_text("\n".join(["click,user,genres", *lines, ""]))
    source = Table(raw=folder / "rows.csv", label="click", fields={"genres": Rule(separator="|")})
    return prepare(source, folder / "data").folder


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "data"))


def _info(change: Callable[[dict[str, Any]], object]) -> Change:
    def edit(folder: Path) -> None:
        info = json.loads((folder / "dataset.json").read_text())
        change(info)
        (folder / "dataset.json").write_text(json.dumps(info))

    return edit


def _array(name: str, change: Callable[[Any], Any]) -> Change:
    return lambda folder: np.save(folder / name, change(np.load(folder / name)))


def _at(place: tuple[int, int], value: int) -> Callable[[Any], Any]:
    def change(array: Any) -> Any:
        array[place] = value
        return array

    return change


def _pipe(name: str) -> Change:
    def change(folder: Path) -> None:
        (folder / name).unlink()
        os.mkfifo(folder / name)

    return change


def _endless(name: str) -> Change:
    def change(folder: Path) -> None:
        (folder / name).unlink()
        (folder / name).symlink_to("/dev/zero")

    return change


def _repeated(values: list[str]) -> pa.Array:
    """Repeats the first value 5,000 times, without using memory for it."""
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(5_000, np.int32)), pa.array(values))


def _use(folder: Path) -> None:
    data = Dataset.open(folder)
    _ = data.train, data.valid, data.test, data.encoder


def test_a_whole_folder_is_read(folder: Path) -> None:
    _use(folder)
    assert Dataset.open(folder).train.ids[:].min() == -1  # padding


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (_info(lambda i: i.pop("made")), "made: Field required"),
        (_info(lambda i: i["made"].pop("source")), "made.source: Field required"),
        (_info(lambda i: i.update(rows=[1, 2, 3])), "rows: Input should be"),
        (_info(lambda i: i["rows"].pop("test")), "must name train, valid, test"),
        (_info(lambda i: i["rows"].update(train="320")), "rows.train"),
        (_info(lambda i: i["rows"].update(train=10**12)), "train holds"),
        (_info(lambda i: i.update(fields=[])), "fields"),
        (_info(lambda i: i["fields"][0].update(cardinality=1.5)), r"fields\.0\.cardinality"),
        (_info(lambda i: i["fields"][0].update(cardinality=0)), r"fields\.0\.cardinality"),
        (_info(lambda i: i["fields"][0].update(cardinality=10**12)), r"fields\.0\.cardinality"),
        (_info(lambda i: i["fields"][0].update(cardinality=10**9)), "holds 7 values, the field has 999999999"),
        (_info(lambda i: i["fields"][0].update(name="genres")), "field names must be unique"),
        (_info(lambda i: i["fields"][0].update(name="other")), "encoding.json is not that of the fields"),
        (_info(lambda i: i["fields"][1].update(length=10**6)), r"fields\.1\.length"),
        (_info(lambda i: i["splits"]["train"].update(nulls=[1])), "one count per field"),
        (_info(lambda i: i.update(fingerprint=None)), "fingerprint"),
        (lambda f: (f / "dataset.json").write_text("[]"), "has format None"),
        (lambda f: (f / "dataset.json").write_text("[" * 200_000), "nested too deep"),
        (_endless("dataset.json"), "not a regular file"),
        (_pipe("dataset.json"), "not a regular file"),
        (_pipe("train.ids.npy"), "not a regular file"),
        (_endless("valid.labels.npy"), "not a regular file"),
        (_endless("vocabulary-000.parquet"), "not a regular file"),
        (_array("train.ids.npy", _at((5, 0), -1)), "train holds ids of 'user' that are out of range"),
        (_array("train.ids.npy", _at((5, 0), 8)), "train holds ids of 'user' that are out of range"),
        (_array("test.ids.npy", _at((0, 2), -2)), "test holds ids of 'genres'"),
        (_array("test.ids.npy", _at((0, 2), 4)), "test holds ids of 'genres'"),
        (_array("valid.labels.npy", lambda a: a + 1), "valid holds labels other than 0 and 1"),
        (_array("valid.labels.npy", lambda a: a.astype(np.float32)), "labels of type float32"),
        (_array("train.ids.npy", lambda a: a.astype(np.int64)), "ids of type int64"),
        (_array("train.ids.npy", lambda a: a.astype(object)), "cannot be read"),
        (lambda f: (f / "encoding.json").write_text('[{"name": "user", "length": -Infinity}]'), "-Infinity"),
        (lambda f: (f / "encoding.json").write_text('{"a": 3}'), "valid list"),
        (lambda f: (f / "encoding.json").write_text('[{"name": "user"}]'), r"0\.rule: Field required"),
    ],
)
def test_a_folder_that_cannot_be_true_is_one_line(folder: Path, change: Change, says: str) -> None:
    change(folder)
    with pytest.raises(DataError, match=says) as caught:
        _use(folder)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("values", "options", "says"),
    [
        (pa.array([[1], [2]]), {}, "values of type list"),
        (pa.array([{"a": 1}, {"a": 2}]), {}, "values of type struct"),
        (pa.array([b"a", b"b"]), {}, "values of type binary"),
        (pa.array(["a", "b"]).dictionary_encode(), {}, "values of type dictionary"),
        (_repeated(["x" * 100_000]), {"store_schema": False}, "holds a value twice"),
        (_repeated(["x" * 100_000, *map(str, range(5_000))]), {"store_schema": False}, "holds a value twice"),
        (pa.array(np.full(1_000_000, 7)), {}, "so they are not distinct"),
        (pa.array([*map(str, range(99))]), {"compression": "zstd"}, "compressed with ZSTD"),
        (
            pa.array([*map(str, range(99))]),
            {"use_dictionary": False, "column_encoding": {"value": "DELTA_BYTE_ARRAY", "count": "PLAIN"}},
            "compressed with SNAPPY, DELTA_BYTE_ARRAY",
        ),
    ],
)
def test_a_vocabulary_of_no_field_is_refused(tmp_path: Path, values: pa.Array, options: Any, says: str) -> None:
    table = pa.table({"value": values, "count": pa.array(np.ones(len(values), np.int64))})
    pq.write_table(table, tmp_path / "v.parquet", **options)
    del table
    usual = pa.default_memory_pool()
    counted = pa.proxy_memory_pool(usual)
    pa.set_memory_pool(counted)
    try:
        with pytest.raises(ValueError, match=says):
            Vocabulary.load(tmp_path / "v.parquet")
    finally:
        pa.set_memory_pool(usual)
    assert counted.max_memory() < 32 * 2**20  # some would expand to 500 MB
    with pytest.raises(
        ValueError, match=f"holds {len(values)} values, the field has 3|holds values of type|compressed with"
    ):
        Vocabulary.load(tmp_path / "v.parquet", 3)


def test_columns_of_other_names_and_counts_of_text_are_no_vocabulary(tmp_path: Path) -> None:
    for table in ({"count": [1]}, {"value": ["a"], "count": ["b"]}, {"value": ["a"], "count": [1], "more": [1]}):
        pq.write_table(pa.table(table), tmp_path / "v.parquet")
        with pytest.raises(ValueError, match=r"not value and count|counts of type string"):
            Vocabulary.load(tmp_path / "v.parquet")


def test_a_large_vocabulary_is_read_as_it_was_written(tmp_path: Path) -> None:
    texts = pa.array([None, *(f"value {i * 7919 % 300_007} of many" for i in range(300_000))])
    Vocabulary(texts, pa.array(np.arange(len(texts)))).save(tmp_path / "v.parquet")
    assert Vocabulary.load(tmp_path / "v.parquet", len(texts)).values.equals(texts)
    narrow = pa.array(range(300_000), pa.int32())
    Vocabulary(narrow, pa.array(np.arange(len(narrow)))).save(tmp_path / "v.parquet")
    assert Vocabulary.load(tmp_path / "v.parquet").encode(pa.array([299_999, -1])).tolist() == [300_000, 0]


@pytest.mark.parametrize(
    "content", [b"", b"\x93NUMPY\x01\x00\x10\x00{'descr': (((     \n"], ids=["empty", "open bracket"]
)
def test_an_array_without_a_header_is_one_line(content: bytes, made: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(made, tmp_path / "data"))
    (folder / "valid.labels.npy").write_bytes(content)
    with pytest.raises(DataError, match="the valid split cannot be read"):
        _ = Dataset.open(folder).valid


@pytest.mark.parametrize(
    ("source", "title"),
    [
        ({"name": "table", "raw": {"clicks.csv.gz": 9}}, "clicks.csv.gz"),
        ({"name": "table", "raw": {"a.csv": 9, "b.csv": 8, "c.csv": 7}}, "a.csv and 2 more"),
        ({"name": "movielens-1m", "raw": {"users.dat": 9}}, "movielens-1m"),
        ({"name": "mine.module:Clicks"}, "Clicks"),
        ({"name": "table", "raw": 3}, "table"),
    ],
)
def test_a_dataset_is_called_by_its_files(source: dict[str, Any], title: str) -> None:
    assert Dataset(Path(), {"made": {"source": source}}).title == title
