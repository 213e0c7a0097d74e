"""New raw rows get the same ids as the dataset's rows, with only the dataset folder."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fieldwise.core.errors import DataError
from fieldwise.core.schema import PADDING
from fieldwise.data.encoder import Encoder
from fieldwise.data.engines.arrow import Arrow
from fieldwise.data.field_encoder import FieldEncoder
from fieldwise.data.frame import Frame
from fieldwise.data.prepare import prepare
from fieldwise.data.rules import Rule
from fieldwise.data.split import ColumnSplit, FileSplit, RandomSplit, TimeSplit
from fieldwise.data.store import Dataset
from fieldwise.data.table import Table
from fieldwise.data.vocabulary import Vocabulary
from tests.data import small_files

FIELDS = {"genres": Rule(separator="|"), "wide": Rule(column="größe, cm", kind="width", width=2.5)}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """The awkward rows split by a column, so that the row order is known."""
    folder = tmp_path_factory.mktemp("encoder")
    source = Table(raw=small_files.awkward(folder / "a.csv"), label="click", fields=FIELDS, min_count=3, nulls=())
    return prepare(source, folder / "out", ColumnSplit(column="part"))


def test_raw_rows_are_encoded_as_the_engine_s_were(data: Dataset) -> None:
    rows = small_files.awkward_rows()
    for part, split in (("train", data.train), ("valid", data.valid), ("test", data.test)):
        chosen = [row for row in rows if row["part"] == part]
        columns = {name: [row[name] for row in chosen] for name in chosen[0]}
        assert np.array_equal(data.encoder.encode(columns), split.ids)
        assert np.array_equal([int(label or 0) for label in columns["click"]], split.labels)


def test_every_awkward_value_has_an_id_of_its_own(data: Dataset) -> None:
    vocabulary = data.vocabulary("text")
    assert set(vocabulary.values.to_pylist()) == set(small_files.AWKWARD)
    ids = vocabulary.encode(pa.array(small_files.AWKWARD))
    assert len(set(ids.tolist())) == len(small_files.AWKWARD)
    assert vocabulary.encode(pa.array(["new", "7.00", "Ä"])).tolist() == [0, 0, 0]


def test_vocabularies_are_ordered_by_count_then_utf8_bytes(data: Dataset) -> None:
    vocabulary = data.vocabulary("text")
    pairs = list(zip(vocabulary.counts.to_pylist(), vocabulary.values.to_pylist(), strict=True))
    assert pairs == sorted(pairs, key=lambda p: (-p[0], p[1] is None, (p[1] or "").encode()))


def test_several_values_and_padding(data: Dataset) -> None:
    encoder = data.encoder
    genres = encoder.fields[data.schema.names.index("genres")]
    assert (genres.several, genres.length) == (True, 3)
    known = genres.vocabulary.encode(pa.array(["ab", "éf", None]))
    got = genres.ids(pa.array(["ab|éf", "new", None, "ab|ab|ab|ab"]))
    pad = PADDING
    ab, ef, null = known.tolist()
    assert got.tolist() == [[ab, ef, pad], [0, pad, pad], [null, pad, pad], [ab, ab, ab]]
    assert data.schema.places == len(data.schema) + 2
    assert data.train.ids.shape[1] == data.schema.places


def test_encoding_needs_no_engine(data: Dataset) -> None:
    code = (
        "import sys\n"
        "for name in ('duckdb', 'ibis', 'pyspark', 'torch'): sys.modules[name] = None\n"
        "from fieldwise.data.encoder import Encoder\n"
        f"encoder = Encoder.open({str(data.folder)!r})\n"
        "rows = {name: ['7', None] for name in encoder.columns}\n"
        "print(encoder.encode(rows).shape)\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.stdout == f"(2, {data.schema.places})\n", result.stderr


def test_numbers_and_text_of_the_same_look_have_the_same_id(data: Dataset) -> None:
    few = data.encoder.fields[data.schema.names.index("few")]
    assert few.ids(pa.array([0, 1, 4])).tolist() == few.ids(pa.array(["0", "1", "4"])).tolist()
    count = data.encoder.fields[data.schema.names.index("count")]
    assert count.ids(pa.array([17.0, 400])).tolist() == count.ids(pa.array(["17", "400"])).tolist()


def test_what_cannot_be_encoded_is_refused(data: Dataset, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="lack the columns text"):
        data.encoder.encode({"few": ["1"]})
    with pytest.raises(DataError, match="cannot encode rows"):
        Encoder.open(tmp_path)


def test_files_of_every_form_make_the_same_dataset(tmp_path: Path) -> None:
    rows = small_files.awkward_rows(600)
    table = pa.Table.from_pylist(rows)
    pq.write_table(table.slice(0, 250), tmp_path / "1.parquet")
    pq.write_table(table.slice(250), tmp_path / "2.parquet")
    small_files.awkward(tmp_path / "a.csv", 600)
    frame = pd.DataFrame({name: pd.Series([r[name] for r in rows], dtype=object) for name in rows[0]})
    fields = {**FIELDS, "count": Rule(kind="log-squared")}  # digits in a typed file would be text
    fingerprints = {
        prepare(Table(raw=tmp_path / "a.csv", label="click", fields=fields), tmp_path / "x").fingerprint,
        prepare(Table(raw=tmp_path / "*.parquet", label="click", fields=fields), tmp_path / "y").fingerprint,
        prepare(Frame(frame=table, label="click", fields=fields), tmp_path / "z").fingerprint,
        prepare(Frame(frame=frame, label="click", fields=fields), tmp_path / "zz").fingerprint,
    }
    assert len(fingerprints) == 1


def test_lists_in_parquet_are_several_values(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    lists = [None if i % 17 == 0 else draw.integers(0, 5, i % 4).tolist() for i in range(400)]
    table = pa.table({"tags": pa.array(lists, pa.list_(pa.int32())), "a": [i % 3 for i in range(400)],
                      "click": [i % 2 for i in range(400)]})  # fmt: skip
    data = prepare(Frame(frame=table, label="click", tiers=0), tmp_path / "x")
    assert data.schema.lengths == (3, 1)
    assert set(data.vocabulary("tags").values.to_pylist()) == {0, 1, 2, 3, 4, None}
    assert sorted(map(tuple, data.encoder.encode(table).tolist())) == sorted(
        tuple(row) for split in (data.train, data.valid, data.test) for row in split.ids[:].tolist()
    )


@pytest.mark.parametrize("min_count", [2, 5])
def test_rare_values_of_lists_are_counted_value_by_value(tmp_path: Path, min_count: int) -> None:
    draw = np.random.default_rng(0)
    lists = [["t0"] if i % 3 == 0 else [f"t{k}" for k in draw.choice(30, 4, replace=False)] for i in range(600)]
    shared = {"a": [i % 3 for i in range(600)], "click": [i % 2 for i in range(600)]}
    text = pa.table({"tags": ["|".join(one) for one in lists], **shared})
    source = Frame(frame=pa.table({"tags": lists, **shared}), label="click", min_count=min_count)
    data = prepare(source, tmp_path / "x")
    split = Frame(frame=text, label="click", min_count=min_count, fields={"tags": Rule(separator="|")})
    assert data.fingerprint == prepare(split, tmp_path / "y").fingerprint
    assert len(data.vocabulary("tags").values) == 30


def test_lists_that_are_there_once_each_keep_their_frequent_values(tmp_path: Path) -> None:
    lists = [["b", f"only-{i}"] if i % 2 else ["a", "b", f"only-{i}"] for i in range(400)]
    table = pa.table({"tags": lists, "click": [i % 3 % 2 for i in range(400)]})
    data = prepare(Frame(frame=table, label="click", min_count=2), tmp_path / "x")
    assert data.vocabulary("tags").values.to_pylist() == ["b", "a"]


def test_splits_by_time_key_and_files(tmp_path: Path) -> None:
    raw = small_files.awkward(tmp_path / "a.csv", 2_000)  # 100 rows per day, days 90 to 109 as text
    source = Table(raw=raw, label="click", fields=FIELDS)
    by_time = prepare(source, tmp_path / "time", TimeSplit(column="day", shares=(0.6, 0.2, 0.2)))
    assert by_time.info["rows"] == {"train": 1_200, "valid": 400, "test": 400}
    days = {str(v) for v in by_time.vocabulary("day").values.to_pylist()}
    assert days == {str(d) for d in range(90, 102)}, "9 is before 10 as a number, not as text"
    rows = small_files.awkward_rows(2_000)
    split = RandomSplit(seed=1, key=("text",))
    by_key = prepare(source, tmp_path / "key", split)
    batch = pa.RecordBatch.from_pylist(rows)
    expected = np.bincount(split.assign(batch, ("text",)), minlength=3).tolist()
    assert list(by_key.info["rows"].values()) == expected
    small_files.awkward(tmp_path / "b.csv", 300)
    small_files.awkward(tmp_path / "c.csv", 2_000)
    by_file = prepare(source, tmp_path / "files", FileSplit(valid=tmp_path / "b.csv", test=tmp_path / "c.csv"))
    assert by_file.info["rows"] == {"train": 2_000, "valid": 300, "test": 2_000}
    assert np.array_equal(by_file.train.ids, by_file.test.ids)
    assert np.array_equal(by_file.valid.ids, by_file.encoder.encode(pa.RecordBatch.from_pylist(rows[:300])))


def test_lists_of_numbers_may_be_binned(tmp_path: Path) -> None:
    table = pa.table({"click": [0, 1] * 200, "prices": [[1.5, 12.0], [7.5]] * 200})
    data = prepare(Frame(frame=table, label="click", fields={"prices": Rule(kind="width", width=5.0)}), tmp_path / "x")
    assert data.schema.lengths == (2,)
    assert sorted(data.vocabulary("prices").values.to_pylist()) == [0, 1, 2]


def test_the_arrow_engine_says_that_it_cannot_split_rows_without_a_key(tmp_path: Path) -> None:
    table = pa.table({"click": [0, 1] * 200, "city": ["a", "b"] * 200})
    with pytest.raises(DataError, match=r"no key.*Use the engine 'duckdb'"):
        prepare(Frame(frame=table, label="click"), tmp_path / "x", engine=Arrow())


@pytest.mark.parametrize("index", ["unnamed", "named", "several"])
def test_the_index_of_a_dataframe_is_no_column(tmp_path: Path, index: str) -> None:
    draw = np.random.default_rng(0)
    frame = pd.DataFrame({name: draw.integers(0, 9, 600) for name in ("a", "b")} | {"click": np.arange(600) % 2})
    frame = frame.iloc[draw.permutation(600)]  # pandas keeps the old row numbers
    plain = prepare(Frame(frame=frame.reset_index(drop=True), label="click"), tmp_path / "x")
    if index != "unnamed":
        frame.index = frame.index.rename("row")
    if index == "several":
        frame = frame.set_index(pd.Index(np.arange(600), name="number"), append=True)
    data = prepare(Frame(frame=frame, label="click"), tmp_path / "y")
    assert data.schema.names == data.encoder.columns == ("a", "b")
    assert data.fingerprint == plain.fingerprint
    assert np.array_equal(data.encoder.encode(frame), data.encoder.encode(frame.reset_index(drop=True)))
    with pytest.raises(DataError, match="lack the columns b"):
        data.encoder.encode(frame[["a"]].rename_axis(index=["b", "c"][: frame.index.nlevels]))
    prepare(Frame(frame=frame, label="click"), tmp_path / "y")  # the rows are the same


def test_parquet_of_pandas_holds_an_index_that_is_no_field(tmp_path: Path) -> None:
    frame = pd.DataFrame({"a": np.arange(600) % 7, "click": np.arange(600) % 2}).sample(600)
    frame.to_parquet(tmp_path / "a.parquet")
    assert "__index_level_0__" in pq.read_schema(tmp_path / "a.parquet").names
    data = prepare(Table(raw=tmp_path / "a.parquet", label="click"), tmp_path / "x")
    assert data.schema.names == ("a",)
    table = pa.Table.from_pandas(frame)
    assert prepare(Frame(frame=table, label="click"), tmp_path / "y").schema.names == ("a",)
    frame.rename_axis("user").to_parquet(tmp_path / "b.parquet")  # a named index is a column of the file
    assert prepare(Table(raw=tmp_path / "b.parquet", label="click", tiers=0), tmp_path / "z").schema.names == (
        "a",
        "user",
    )


@pytest.mark.parametrize(
    "column",
    [
        pa.array([{"a": 1}, None]),
        pa.array([["x"], ["y"]]),
        pa.array([b"\xff", b"x"]),
        pa.array([[["x"]], None]),
    ],
    ids=["struct", "list", "bytes", "lists of lists"],
)
def test_a_column_of_another_kind_is_one_line(column: pa.Array, tmp_path: Path) -> None:
    frame = pa.table({"a": pa.array([f"v{i % 7}" for i in range(600)]), "click": np.arange(600) % 2})
    data = prepare(Frame(frame=frame, label="click"), tmp_path / "x")
    with pytest.raises(DataError, match=r"Column 'a' holds .*\. Allowed: text, numbers and times\. Give the column"):
        data.encoder.encode(pa.table({"a": column}))


@pytest.mark.parametrize("kind", [pa.list_(pa.string()), pa.large_list(pa.string()), pa.list_(pa.string(), 2)], ids=str)
def test_lists_of_every_arrow_type_are_the_same_rows(kind: pa.DataType, tmp_path: Path) -> None:
    rows = pa.array([[f"a{i % 3}", f"b{i % 5}"] for i in range(600)])
    data = prepare(Frame(frame=pa.table({"g": rows, "click": np.arange(600) % 2}), label="click"), tmp_path / "x")
    assert np.array_equal(data.encoder.encode({"g": rows[:9].cast(kind)}), data.encoder.encode({"g": rows[:9]}))


@pytest.mark.parametrize(
    ("rule", "known", "column"),
    [
        (Rule(kind="log-squared"), pa.array([0, 1, 2, -2]), pa.array(["1", " 2", "x", None, "", "3.5"] * 500)),
        (Rule(kind="width", width=0.5), pa.array([0, 3, 7]), pa.array([0, 1, 2, None, 3] * 500)),
        (Rule(kind="quantile", edges=(1.0, 2.0)), pa.array([0, 1, 2]), pa.array([0.0, -0.0, None, 1.5, 9.0] * 500)),
        (Rule(kind="hour"), pa.array([1, 2]), pa.array(["2024-05-01 01:00", "no", None, "2024-05-01 07:00"] * 500)),
        (Rule(separator="|"), pa.array(["a", "b", None]), pa.array(["a|b", "c", None, "b|b|a", ""] * 500)),
        (Rule(), pa.array(["1", "2.0", None]), pa.array([1, 2, None, 3] * 500)),
        (Rule(), pa.array([1, 2, None]), pa.array(["1", "2.0", None, "x"] * 500)),
    ],
)
def test_values_that_repeat_get_the_ids_of_single_rows(rule: Rule, known: pa.Array, column: pa.Array) -> None:
    several = rule.separator is not None
    field = FieldEncoder("f", rule, Vocabulary(known, pa.nulls(len(known))), 3 if several else 1, several)
    assert field._repeats(column)
    found, single = field.encode(column), [field.encode(column.slice(i, 1)) for i in range(60)]
    for place, name in enumerate(("ids", "nulls", "unparsed")):
        expected = np.concatenate([part[place] for part in single])
        assert np.array_equal(found[place][:60], expected), name
        assert np.array_equal(found[place][-60:], expected), name
    assert not field._repeats(pa.array([f"{i}" for i in range(2_000)])), "values that do not repeat"
