"""Every engine writes the same dataset; tests of Spark are skipped without Spark or Java."""

import errno
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fieldwise.core.errors import DataError
from fieldwise.data.avazu import Avazu
from fieldwise.data.check import check
from fieldwise.data.criteo import Criteo
from fieldwise.data.engines.arrow import Arrow
from fieldwise.data.engines.duckdb import DuckDB
from fieldwise.data.engines.engine import Engine
from fieldwise.data.engines.executors import telling
from fieldwise.data.engines.spark import Spark
from fieldwise.data.kinds import sampling
from fieldwise.data.movielens_1m import MovieLens1M
from fieldwise.data.planted import Planted
from fieldwise.data.prepare import prepare
from fieldwise.data.source import Source
from fieldwise.data.split import ColumnSplit, FileSplit, RandomSplit, SplitRule, TimeSplit
from fieldwise.data.store import Dataset
from fieldwise.data.table import Table
from tests.data import small_files
from tests.data.small_files import assert_same_dataset, quiet, rules, spark


@pytest.mark.parametrize("name", ["planted", "movielens"])
def test_this_process_and_duckdb_make_the_same_dataset(name: str, tmp_path: Path, movielens_zip: Path) -> None:
    source = Planted(rows=5_000) if name == "planted" else MovieLens1M(raw=movielens_zip)
    assert_same_dataset(source, tmp_path, [Arrow(), DuckDB(), DuckDB(threads=1, memory=1024)])


def test_more_times_than_a_batch_are_split_at_their_shares(tmp_path: Path) -> None:
    times = np.random.default_rng(4).permutation(300_000)  # 3 batches of distinct times
    lines = "".join(f"{i % 2},{i % 5},{time}\n" for i, time in enumerate(times.tolist()))
    (tmp_path / "a.csv").write_text("click,a,time\n" + lines)
    source = Table(raw=tmp_path / "a.csv", label="click", only=("a",))
    data = prepare(source, tmp_path / "out", TimeSplit(column="time", shares=(0.3, 0.65, 0.05)))
    assert data.info["rows"] == {"train": 90_000, "valid": 195_000, "test": 15_000}
    assert data.test.labels.tolist() == (np.flatnonzero(times >= 285_000) % 2).tolist()


@spark
@quiet
def test_spark_and_duckdb_make_the_same_dataset_of_awkward_rows(tmp_path: Path) -> None:
    source = Table(
        raw=small_files.awkward(tmp_path / "a.csv"), label="click", min_count=3, ignore=("part", "few"), fields=rules()
    )
    assert_same_dataset(source, tmp_path, [DuckDB(), Spark(master="local[2]", memory=1024, shard_rows=700)])
    assert len(Dataset.open(tmp_path / "out-1").shards) >= 3  # written by executors


@spark
@quiet
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", ["criteo", "avazu", "movielens"])
def test_spark_and_duckdb_make_the_same_dataset(name: str, tmp_path: Path, movielens_zip: Path) -> None:
    found: dict[str, Source] = {
        "criteo": Criteo(raw=small_files.criteo(tmp_path / "criteo.txt")),
        "avazu": Avazu(raw=small_files.avazu(tmp_path / "avazu.csv"), hour="parts"),
        "movielens": MovieLens1M(raw=movielens_zip),
    }
    assert_same_dataset(found[name], tmp_path, [DuckDB(), Spark(master="local[2]", memory=1024)])


@spark
@quiet
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_spark_and_duckdb_infer_the_same_kinds_and_rare_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engines: list[Engine] = [DuckDB(), Spark(master="local[2]", memory=1024)]
    source = Table(raw=small_files.published(tmp_path), label="rating >= 4", encoding="latin-1")
    assert_same_dataset(source, tmp_path, engines)
    data = Dataset.open(tmp_path / "out-1")
    assert data.kinds is not None
    assert data.kinds.kinds == small_files.PUBLISHED_KINDS
    assert (data.encoder.fields[0].rule.min_count or 0) > 1  # chosen on the validation rows
    monkeypatch.setattr(sampling, "SAMPLE", 2_000)  # rows are then counted in the engine
    here, there = (check(source, engine=engine) for engine in engines)
    assert here.every > 1
    assert here == there


SPLITS: dict[str, Callable[[Path], SplitRule]] = {
    "key": lambda _: RandomSplit(seed=3, key=("few", "text")),
    "time": lambda _: TimeSplit(column="day", shares=(0.6, 0.2, 0.2)),
    "column": lambda _: ColumnSplit(column="part"),
    "files": lambda folder: FileSplit(valid=folder / "b.csv", test=folder / "c*.csv"),
}


@spark
@quiet
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", SPLITS)
def test_spark_and_duckdb_split_alike(name: str, tmp_path: Path) -> None:
    for part in ("a", "b", "c1", "c2"):
        small_files.awkward(tmp_path / f"{part}.csv", 900)
    several = Table(raw=tmp_path / ("a.csv" if name == "files" else "*.csv"), label="click", fields=rules())
    assert_same_dataset(several, tmp_path, [DuckDB(), Spark(master="local[2]", memory=1024)], SPLITS[name](tmp_path))


@spark
@quiet
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_spark_tells_bad_rows_and_skips_them(tmp_path: Path) -> None:
    rows = [f"{i % 2},{i % 7},u{i % 50}" for i in range(3_000)]
    rows[1_232] = "1,2"
    (tmp_path / "a.csv").write_text("\n".join(["click,a,b", *rows, ""]))
    engine = Spark(master="local[2]", memory=1024)
    with pytest.raises(DataError, match=r"line 1,234: .*'1,2'. Bad rows in total: 1"):
        prepare(Table(raw=tmp_path / "a.csv", label="click"), tmp_path / "out", engine=engine)
    assert_same_dataset(Table(raw=tmp_path / "a.csv", label="click", bad_rows="skip"), tmp_path, [DuckDB(), engine])


@spark
@quiet
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_spark_tells_bytes_that_are_not_utf8_and_skips_them(tmp_path: Path) -> None:
    rows = [f"{i % 2},{i % 7},é{i % 50}".encode() for i in range(30_000)]
    rows[20_000] = "1,2,é3".encode("latin-1")
    rows[20_005] = "1,é".encode("latin-1")  # also too few columns, but one bad row
    rows[20_006] = b"1,2"
    (tmp_path / "a.csv").write_bytes(b"\n".join([b"click,a,b", *rows, b""]))
    engine = Spark(master="local[2]", memory=1024)
    with pytest.raises(DataError, match=r"line 20,002: not utf-8 text. .* Bad rows in total: 3"):
        prepare(Table(raw=tmp_path / "a.csv", label="click"), tmp_path / "out", engine=engine)
    assert_same_dataset(Table(raw=tmp_path / "a.csv", label="click", bad_rows="skip"), tmp_path, [DuckDB(), engine])


@spark
@pytest.mark.parametrize(
    ("text", "kind", "says"),
    [
        ("x.IOException: a\nCaused by: java.io.IOException: No space left on device\n\tat b", OSError, "No space left"),
        ("Job aborted\nCaused by: java.io.IOException: Mkdirs failed to create a\n\tat b", DataError, "Mkdirs failed"),
        ("Traceback\nModuleNotFoundError: No module named 'fieldwise'\n\n\tat c", DataError, "No module named"),
        ("", DataError, "no reason given"),
    ],
)  # fmt: skip
def test_a_failed_spark_job_is_told_in_one_line(text: str, kind: type[Exception], says: str) -> None:
    from pyspark.errors import PySparkException

    with pytest.raises(kind, match=says) as caught, telling(Path("/shared/out")):
        raise PySparkException(text)
    assert "\n" not in str(caught.value)
    assert kind is not OSError or caught.value.errno == errno.ENOSPC  # type: ignore[attr-defined]
