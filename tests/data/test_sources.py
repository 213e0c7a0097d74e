"""The contract of every source, and the details of each."""

import os
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

from fieldwise.core.errors import DataError
from fieldwise.core.registry import resolve
from fieldwise.data import SOURCES
from fieldwise.data.avazu import Avazu
from fieldwise.data.criteo import Criteo
from fieldwise.data.movielens_1m import VARIANTS, MovieLens1M, Variant
from fieldwise.data.planted import CARDINALITIES, WIDTHS, Planted
from fieldwise.data.prepare import prepare
from fieldwise.data.rules import Rule
from fieldwise.data.source import Source, SourceRows
from fieldwise.data.store import Dataset
from fieldwise.data.table import Table
from tests.data import small_files


@pytest.fixture(params=SOURCES)
def source(request: pytest.FixtureRequest, movielens_zip: Path, tmp_path: Path) -> Source:
    """Every source with few rows."""
    small: dict[str, Source] = {
        "avazu": Avazu(raw=small_files.avazu(tmp_path / "avazu.csv"), min_count=1, tiers=0),
        "criteo": Criteo(raw=small_files.criteo(tmp_path / "criteo.txt"), min_count=1, tiers=0),
        "planted": Planted(rows=5_000),
        "movielens-1m": MovieLens1M(raw=movielens_zip, tiers=0),
        "table": Table(raw=small_files.awkward(tmp_path / "table.csv"), label="click", nulls=()),
    }
    found = small[request.param]
    assert isinstance(found, resolve("data", SOURCES, request.param))
    return found


def raw_rows(source: Source) -> pa.Table:
    """Reads the raw rows without an engine; unquoted empty text is null."""
    rows = source.open()
    if isinstance(rows, SourceRows):
        return pa.Table.from_batches(rows.batches())
    return pa.csv.read_csv(
        rows.paths[0],
        pa.csv.ReadOptions(column_names=rows.columns, skip_rows=int(rows.header)),
        pa.csv.ParseOptions(
            delimiter=rows.delimiter, quote_char='"' if rows.quoted else False, newlines_in_values=rows.quoted
        ),
        pa.csv.ConvertOptions(
            column_types=dict.fromkeys(rows.columns, pa.string()),
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )


def test_every_source_becomes_a_sound_dataset(source: Source, tmp_path: Path) -> None:
    data = prepare(source, tmp_path / "a")
    raw = raw_rows(source)
    splits = (data.train, data.valid, data.test)
    assert sum(len(split) for split in splits) == raw.num_rows
    for split in splits:
        assert split.ids.dtype == np.int32
        assert (split.ids[:] >= 0).all()
        assert (split.ids < np.asarray(data.schema.cardinalities)).all()
        assert set(np.unique(split.labels)) == {0, 1}
    assert (data.train.ids[:] > 0).all(), "with a minimum count of 1 no training value is unknown"
    assert prepare(source, tmp_path / "b").fingerprint == data.fingerprint


def test_every_source_decodes_to_the_raw_rows(source: Source, tmp_path: Path) -> None:
    data = prepare(source, tmp_path / "a")
    raw = raw_rows(source)
    place = next(i for i, field in enumerate(data.encoder.fields) if field.rule.kind == "category")
    name = data.schema.names[place]
    values = [None, *data.vocabulary(name).values.to_pylist()]
    decoded = [values[i] for split in (data.train, data.valid, data.test) for i in split.ids[:, place] if i]
    known = set(values[1:])
    assert sorted(map(str, decoded)) == sorted(str(v) for v in raw[name].to_pylist() if v in known)


def test_planted_is_the_same_for_the_same_seed_and_grows_at_its_end() -> None:
    def table(**settings: int) -> pa.Table:
        return pa.Table.from_batches(Planted(**settings).open().batches())

    short, long = table(rows=1_000), table(rows=260_000)
    assert long.slice(0, 1_000).equals(short)
    assert long.num_rows == 260_000
    assert table(rows=1_000).equals(short)
    assert not table(rows=1_000, seed=1).equals(short)


def test_planted_clicks_follow_the_planted_products() -> None:
    assert WIDTHS == {"user": 7, "item": 5, "city": 2, "noise_a": 0, "noise_b": 0, "noise_c": 0}
    table = pa.Table.from_batches(Planted(rows=250_000).open().batches())
    click = table["click"].to_numpy().astype(float) - 0.5

    def signal(a: str, b: str) -> float:
        """Mean squared click rate of the cells of two fields, minus its expectation without a signal."""
        cell = table[a].to_numpy() * CARDINALITIES[b] + table[b].to_numpy()
        counts = np.bincount(cell, minlength=CARDINALITIES[a] * CARDINALITIES[b])
        sums = np.bincount(cell, weights=click, minlength=len(counts))
        return float(((sums**2 - counts * 0.25)[counts > 1]).sum() / (counts * (counts - 1)).sum())

    assert signal("item", "noise_b") < 0.003
    assert signal("user", "city") > 0.01
    assert signal("user", "item") > 0.01


@pytest.mark.parametrize("variant", VARIANTS)
def test_movielens_variants(movielens_zip: Path, tmp_path: Path, variant: Variant) -> None:
    data = prepare(MovieLens1M(raw=movielens_zip, variant=variant, tiers=0), tmp_path / "a")
    assert data.schema.names == VARIANTS[variant]
    if "year" in data.schema.names:
        assert set(data.vocabulary("year").values.to_pylist()) <= {str(y) for y in range(1950, 2000)}
    if "genres" in data.schema.names:
        assert data.vocabulary("genres").values.to_pylist() == ["Comedy|Drama", "War"]


def test_movielens_folder_and_zip_are_the_same(movielens_zip: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(movielens_zip) as archive:
        archive.extractall(tmp_path)
    zipped = prepare(MovieLens1M(raw=movielens_zip, tiers=0), tmp_path / "a")
    assert prepare(MovieLens1M(raw=tmp_path / "ml-1m", tiers=0), tmp_path / "b").fingerprint == zipped.fingerprint
    assert prepare(MovieLens1M(raw=tmp_path / "ml-1m", tiers=0), tmp_path / "a").fingerprint == zipped.fingerprint


def test_movielens_drops_rating_3(movielens_zip: Path) -> None:
    with zipfile.ZipFile(movielens_zip) as archive:
        ratings = [line.split("::")[2] for line in archive.read("ml-1m/ratings.dat").decode().splitlines()]
    rows = MovieLens1M(raw=movielens_zip, tiers=0).open()
    table = pa.Table.from_batches(rows.batches())
    assert table.num_rows == len(ratings) - ratings.count("3") == rows.count
    assert sum(table["click"].to_pylist()) == ratings.count("4") + ratings.count("5")


def test_what_is_not_movielens_is_refused(tmp_path: Path, movielens_zip: Path) -> None:
    other = tmp_path / "other.zip"
    with zipfile.ZipFile(other, "w") as archive:
        archive.writestr("hello.txt", "hello")
    text = tmp_path / "text.zip"
    text.write_text("no zip at all")
    damaged = tmp_path / "ml-1m"
    with zipfile.ZipFile(movielens_zip) as archive:
        archive.extractall(tmp_path)
    (damaged / "ratings.dat").write_text("1::2::3\n")
    for path, says in ((other, "holds no ratings.dat"), (text, "holds no ratings.dat"), (damaged, "is damaged")):
        with pytest.raises(DataError, match=says):
            prepare(MovieLens1M(raw=path), tmp_path / "out")
        assert not (tmp_path / "out").exists()
    with pytest.raises(DataError, match="does not exist"):
        prepare(MovieLens1M(raw=tmp_path / "absent"), tmp_path / "out")


def kinds(data: Dataset) -> dict[str, str]:
    return {field.name: field.rule.kind for field in data.encoder.fields}


def test_a_rule_that_says_one_thing_leaves_the_rest_to_the_source(tmp_path: Path) -> None:
    raw = small_files.awkward(tmp_path / "a.csv", 1_000)
    fields = {
        "größe, cm": Rule(min_count=2),
        "count": Rule(kind="width", width=50),
        "few": Rule(min_count=3),
        "again": Rule(column="count", min_count=4),
        "genres": Rule(separator="|"),
        "day": Rule(separator="."),
    }
    data = prepare(Table(raw=raw, label="click", fields=fields, ignore=("part",)), tmp_path / "x")
    assert kinds(data) == {
        "text": "category", "größe, cm": "quantile", "count": "width", "few": "category", "genres": "category",
        "day": "category", "again": "quantile",
    }  # fmt: skip
    assert {f.name: f.rule.min_count for f in data.encoder.fields if f.name in ("größe, cm", "few", "again")} == {
        "größe, cm": 2, "few": 3, "again": 4,
    }  # fmt: skip
    plain = Table(raw=raw, label="click", fields={"größe, cm": Rule(kind="category", tiers=0)})
    assert kinds(prepare(plain, tmp_path / "y"))["größe, cm"] == "category"


def test_a_rule_that_says_one_thing_leaves_criteo_s_and_avazu_s_kinds(tmp_path: Path) -> None:
    criteo = Criteo(raw=small_files.criteo(tmp_path / "criteo.txt"), fields={"I2": Rule(min_count=2)})
    rule = next(f.rule for f in prepare(criteo, tmp_path / "x").encoder.fields if f.name == "I2")
    assert (rule.kind, rule.min_count) == ("log-squared", 2)
    fields = {"hour": Rule(min_count=2), "weekday": Rule(kind="category")}
    avazu = Avazu(raw=small_files.avazu(tmp_path / "avazu.csv"), hour="parts", fields=fields, tiers=0)
    found = {f.name: f.rule for f in prepare(avazu, tmp_path / "y").encoder.fields}
    assert (found["hour"].kind, found["hour"].min_count) == ("hour", 2)
    assert (found["weekday"].kind, found["weekday"].column) == ("category", "hour")


def test_settings_that_are_read_back_say_no_more_than_was_said(tmp_path: Path) -> None:
    source = Table(raw=small_files.awkward(tmp_path / "a.csv"), label="click", fields={"größe, cm": Rule(min_count=2)})
    assert source.values()["fields"] == {"größe, cm": {"min_count": 2}}
    data = prepare(source, tmp_path / "x")
    again = Table.model_validate(source.values())
    assert prepare(again, tmp_path / "y").fingerprint == data.fingerprint
    said = {"größe, cm": Rule(min_count=2, kind="category")}
    with pytest.raises(DataError, match=r"was made with other settings: source.fields.größe, cm.kind"):
        prepare(source.model_copy(update={"fields": said}), tmp_path / "x")


DATA = Path(os.environ.get("FIELDWISE_DATA", "no-such-folder"))
REAL = DATA / "ml-1m.zip"


@pytest.mark.skipif(not REAL.exists(), reason="set FIELDWISE_DATA to a folder with ml-1m.zip to run this")
def test_real_movielens_counts(tmp_path: Path) -> None:
    data = prepare(MovieLens1M(raw=REAL, tiers=0), tmp_path / "a")
    assert data.info["rows"] == {"train": 590_856, "valid": 74_444, "test": 73_712}
    assert sum(data.info["rows"].values()) == 739_012
    assert data.schema.cardinalities == (6_041, 3_634, 3, 8, 22, 3_440, 302)
    clicks = sum(int(s.labels.sum()) for s in (data.train, data.valid, data.test))
    assert clicks == 575_281


@pytest.mark.skipif(not (DATA / "criteo_sample.txt.gz").exists(), reason="set FIELDWISE_DATA to run this")
def test_real_criteo_counts(tmp_path: Path) -> None:
    data = prepare(Criteo(raw=DATA / "criteo_sample.txt.gz", tiers=0), tmp_path / "a")
    assert data.info["rows"] == {"train": 42_744, "valid": 5_384, "test": 5_308}
    assert {name: split["clicks"] for name, split in data.info["splits"].items()} == {
        "train": 10_261, "valid": 1_299, "test": 1_246,
    }  # fmt: skip
    assert data.schema.cardinalities == (
        25, 73, 47, 23, 181, 69, 45, 20, 67, 6, 21, 18, 30, 70, 279, 334, 435, 30, 8, 934, 43, 3, 628, 921, 345, 858,
        24, 789, 381, 10, 559, 179, 5, 357, 7, 13, 450, 35, 295,
    )  # fmt: skip
    assert sum(data.info["rows"].values()) == 53_436


@pytest.mark.skipif(not (DATA / "avazu_sample.csv.gz").exists(), reason="set FIELDWISE_DATA to run this")
def test_real_avazu_counts(tmp_path: Path) -> None:
    data = prepare(Avazu(raw=DATA / "avazu_sample.csv.gz", tiers=0), tmp_path / "a")
    assert data.info["rows"] == {"train": 61_426, "valid": 7_720, "test": 7_588}
    assert {name: split["clicks"] for name, split in data.info["splits"].items()} == {
        "train": 10_429, "valid": 1_329, "test": 1_274,
    }  # fmt: skip
    assert data.schema.cardinalities == (
        241, 8, 7, 470, 370, 15, 397, 36, 17, 41, 830, 1_254, 5, 5, 681, 7, 8, 301, 5, 58, 136, 53,
    )  # fmt: skip
    assert sum(data.info["rows"].values()) == 76_734
    parts = prepare(Avazu(raw=DATA / "avazu_sample.csv.gz", hour="parts", tiers=0), tmp_path / "b")
    assert parts.schema.names[:3] == ("hour", "weekday", "weekend")
    assert parts.schema.cardinalities[:3] == (25, 8, 3)
