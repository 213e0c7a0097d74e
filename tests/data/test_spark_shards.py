"""Spark's executors encode rows and write shards: the same rows as DuckDB's, and nothing after an error."""

import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

import fieldwise as fw
from fieldwise.core.errors import DataError
from fieldwise.data import prepare as preparing
from fieldwise.data import tiers
from fieldwise.data.encode import Encoding
from fieldwise.data.engines.executors import outcome, run
from fieldwise.data.source import Source
from fieldwise.data.split import TimeSplit
from fieldwise.data.store import Dataset
from tests.data import small_files
from tests.data.small_files import assert_same_dataset, clicks, frame, quiet, rules, spark

ENGINE = fw.Spark(master="local[2]", memory=1024)
DATA = Path(os.environ.get("FIELDWISE_DATA", "no-such-folder"))
pytestmark = [spark, quiet, pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Any]:
    """The session of the engine; Spark does not join small parts of rows, so there are four."""
    from pyspark.sql import SparkSession

    from fieldwise.data.engines.spark import _Session

    _Session(ENGINE)
    found = SparkSession.active()
    found.conf.set("spark.sql.adaptive.coalescePartitions.enabled", "false")
    yield found
    found.conf.unset("spark.sql.adaptive.coalescePartitions.enabled")


def table(folder: Path, **more: Any) -> fw.data.Table:
    return fw.data.Table(raw=small_files.awkward(folder / "a.csv"), label="click", fields=rules(), **more)


@pytest.mark.usefixtures("session")
def test_any_number_of_tasks_writes_the_same_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiers, "MIN_VALUES", 5)
    assert_same_dataset(frame(clicks(), tiers=0.25), tmp_path, [fw.DuckDB(), ENGINE])
    data = Dataset.open(tmp_path / "out-1")
    assert len(data.shards) == 4
    assert (data.encoder.fields[0].rule.min_count or 0) > 1, "chosen on the validation rows"
    assert any(entry.tier for entry in data.encoder.fields)


@pytest.mark.usefixtures("session")
def test_a_split_by_time_leaves_shards_without_some_splits(tmp_path: Path) -> None:
    split = TimeSplit(column="day", shares=(0.6, 0.2, 0.2))
    assert_same_dataset(table(tmp_path), tmp_path, [fw.DuckDB(shard_rows=300), ENGINE], split)
    shards = Dataset.open(tmp_path / "out-1").shards
    assert len(shards) == 4
    assert any(0 in shard.rows.values() for shard in shards)


@dataclass(frozen=True)
class _Dies:
    """Work that kills its process."""

    def __call__(self, *_: Any) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize(
    ("work", "says"),
    [
        (lambda given: replace(given, folder=given.folder / "missing"), "executors cannot use .*missing"),
        (lambda given: replace(given, folder=Path("/proc")), "executors cannot use .*'/proc/"),
        (lambda _: _Dies(), r"Spark stopped \(.*crashed"),
        (lambda given: replace(given, clicks=None), r"Spark stopped \(.*TypeError"),
    ],
    ids=["not there", "not writable", "killed", "a defect"],
)
def test_a_failed_job_is_one_line_and_leaves_nothing(
    work: Any, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preparing, "Encoding", lambda *given: work(Encoding(*given)))
    with pytest.raises(DataError, match=says) as caught:
        fw.prepare(table(tmp_path), tmp_path / "out", engine=ENGINE)
    assert "\n" not in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["a.csv"]


def test_a_folder_that_executors_do_not_share_is_told_before_rows_are_read(session: Any, tmp_path: Path) -> None:
    from fieldwise.data.engines.spark_rows import _Probe, check_folder

    check_folder(session, tmp_path)
    with pytest.raises(FileNotFoundError):
        check_folder(session, tmp_path / "missing")
    (tmp_path / "other").mkdir()
    found = run(session, _Probe(tmp_path / "other" / "token"), range(2), tmp_path)
    assert {problem for _, _, problem in found} == {"it has another folder of this name"}


@pytest.mark.parametrize("name", ["criteo", "avazu"])
def test_the_real_samples_are_encoded_alike(name: str, tmp_path: Path) -> None:
    files = {"criteo": "criteo_sample.txt.gz", "avazu": "avazu_sample.csv.gz"}
    raw = DATA / files[name]
    if not raw.exists():
        pytest.skip(f"set FIELDWISE_DATA to a folder with {raw.name} to run this")
    source: Source = fw.data.Criteo(raw=raw) if name == "criteo" else fw.data.Avazu(raw=raw)
    assert_same_dataset(source, tmp_path, [fw.DuckDB(), fw.Spark(master="local[2]", memory=1024, shard_rows=20_000)])
    assert len(Dataset.open(tmp_path / "out-1").shards) >= 3


def test_errors_that_a_user_can_fix_are_returned() -> None:
    def fails(item: Exception, done: Any) -> None:
        raise item

    assert isinstance(outcome(fails, DataError("x")), DataError)
    assert outcome(fails, OSError(13, "no", "/a")).filename == "/a"
    with pytest.raises(ZeroDivisionError):
        outcome(fails, ZeroDivisionError())
