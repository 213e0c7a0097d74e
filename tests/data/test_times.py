"""Times of every unit and zone: engines and the encoder of new rows read them identically."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError

from fieldwise.core.errors import DataError
from fieldwise.data.convert import timestamps
from fieldwise.data.engines.arrow import Arrow
from fieldwise.data.engines.duckdb import DuckDB
from fieldwise.data.engines.spark import Spark
from fieldwise.data.prepare import prepare
from fieldwise.data.rules import Kind, Rule
from fieldwise.data.source import Source, SourceRows
from fieldwise.data.split import ColumnSplit
from fieldwise.data.store import Dataset
from fieldwise.data.table import Table
from fieldwise.data.vocabulary import Vocabulary
from tests.data.small_files import assert_same_dataset, quiet, spark

ROWS = 600
SECONDS = np.random.default_rng(0).integers(-40, 200, ROWS) * 5_400  # every 90 minutes around 1970
TYPES = [
    *(pa.timestamp(unit) for unit in ("s", "ms", "us", "ns")),
    *(pa.timestamp("us", "UTC"), pa.timestamp("ms", "America/New_York"), pa.timestamp("us", "+05:30")),
]
KINDS: Final[tuple[Kind, ...]] = ("category", "hour", "weekday", "weekend", "log-squared", "width", "quantile")


def times(kind: pa.DataType) -> pa.Array:
    """The same times as any type; every eleventh is null."""
    found = pa.array(SECONDS, mask=np.arange(ROWS) % 11 == 0).cast(pa.timestamp("s"))
    return found.cast(pa.timestamp("s", "UTC")).cast(kind) if kind.tz else found.cast(kind)


def table(column: pa.Array) -> pa.Table:
    """Rows with a known split."""
    parts = ["train", "valid", "train", "test"]
    return pa.table(
        {"t": column, "part": [parts[i % 4] for i in range(ROWS)], "click": [i // 4 % 2 for i in range(ROWS)]}
    )


def train(column: pa.Array) -> pa.Table:
    """The training rows of `table`."""
    return table(column).take(np.arange(0, ROWS, 2))


def every(folder: Path, column: pa.Array) -> Source:
    """A Parquet file whose column becomes a field of every kind."""
    pq.write_table(table(column), folder / "raw.parquet")
    fields: dict[str, Rule] = {kind: Rule(column="t", kind=kind, width=3.6e9, bins=8) for kind in KINDS}
    return Table(raw=folder / "raw.parquet", label="click", ignore=("t",), fields=fields, tiers=0)


def made(folder: Path, column: pa.Array, kind: Kind = "category") -> Dataset:
    """Prepares a Parquet file with this column."""
    pq.write_table(table(column), folder / "raw.parquet")
    source = Table(raw=folder / "raw.parquet", label="click", fields={"t": Rule(kind=kind)}, tiers=0)
    return prepare(source, folder / "data", ColumnSplit(column="part"))


@pytest.mark.parametrize("unit", TYPES, ids=str)
def test_new_rows_of_any_unit_and_zone_get_the_ids_of_the_dataset(tmp_path: Path, unit: Any) -> None:
    data = prepare(every(tmp_path, times(unit)), tmp_path / "data", ColumnSplit(column="part"))
    assert data.schema.names == KINDS
    assert (data.train.ids[:] > 0).all()
    for other in TYPES:
        assert np.array_equal(data.encoder.encode(train(times(other))), data.train.ids), other
    edges = data.encoder.fields[KINDS.index("quantile")].rule.edges
    assert len(edges) == 7
    assert list(edges) == sorted(edges)


def test_lists_of_times_are_read_alike_too(tmp_path: Path) -> None:
    lists = pa.array([[v] for v in times(pa.timestamp("ms")).to_pylist()], pa.list_(pa.timestamp("ms")))
    data = made(tmp_path, lists)
    assert np.array_equal(data.encoder.encode(train(lists)), data.train.ids)
    assert (data.train.ids[:] > 0).all()


@pytest.mark.parametrize("kind", ["category", "hour", "weekday"])
def test_times_as_text_are_read_as_times(tmp_path: Path, kind: Kind) -> None:
    data = made(tmp_path, times(pa.timestamp("ms", "America/New_York")), kind)
    utc = times(pa.timestamp("s"))
    for form in ("%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M", "%Y-%m-%d %H:%M:%SZ", "%Y-%m-%d %H:%M:%S+00:00"):
        assert np.array_equal(data.encoder.encode(train(pc.strftime(utc, format=form))), data.train.ids), form
    local = pc.strftime(times(pa.timestamp("s", "America/New_York")), format="%Y-%m-%dT%H:%M:%S%z")
    assert np.array_equal(data.encoder.encode(train(local)), data.train.ids)


def test_times_find_the_text_they_were_trained_as(tmp_path: Path) -> None:
    text = pc.strftime(times(pa.timestamp("s")), format="%Y-%m-%d %H:%M:%S")
    data = made(tmp_path, text)
    assert np.array_equal(data.encoder.encode(train(times(pa.timestamp("ns")))), data.train.ids)


def test_days_are_times_at_midnight(tmp_path: Path) -> None:
    days = times(pa.timestamp("s")).cast(pa.date32())
    data = made(tmp_path, days)
    for same_days in (days.cast(pa.date64()), days.cast(pa.timestamp("ns")), days.cast(pa.string())):
        assert np.array_equal(data.encoder.encode(train(same_days)), data.train.ids)
    noon = pc.add(days.cast(pa.timestamp("s")), pa.scalar(43_200, pa.duration("s")))
    assert not data.encoder.encode(train(noon))[np.asarray(train(noon)["t"].is_valid())].any()


def test_vocabularies_of_older_folders_are_read_as_new_ones_are_written(tmp_path: Path) -> None:
    new = Vocabulary(pa.array([3_600_000_000, None], pa.timestamp("us")), pa.array([2, 1]))
    for kind in (pa.timestamp("us", "UTC"), pa.timestamp("ms"), pa.timestamp("ns")):
        Vocabulary(new.values.cast(kind), new.counts).save(tmp_path / "v.parquet")
        assert Vocabulary.load(tmp_path / "v.parquet").values.equals(new.values)


def test_text_that_is_no_time_is_none() -> None:
    text = ["2024-02-29T23:59:59.123456789", "2024-02-30", "2024-06-01 24:00", "2024-06-01 13:00-0230", "1", "", None]
    found = [time and str(time) for time in timestamps(pa.array(text)).to_pylist()]
    assert found == ["2024-02-29 23:59:59.123456", None, None, "2024-06-01 15:30:00", None, None, None]


def test_edges_that_do_not_rise_are_refused() -> None:
    with pytest.raises(ValidationError, match="edges must be strictly increasing"):
        Rule(kind="quantile", edges=(1.0, 3.0, 2.0))
    parts = [(np.array([3.0, 4.0]), np.array([5, 5])), (np.array([1.0, 2.0]), np.array([5, 5]))]
    with pytest.raises(DataError, match=r"Quantiles .* are not increasing.*kind 'width'"):
        Rule(kind="quantile", bins=4).quantiles(parts, 20)


class Made(Source):
    """Rows generated in this process."""

    def open(self) -> SourceRows:
        """Returns times with a zone, in milliseconds."""
        rows = table(times(pa.timestamp("ms", "America/New_York"))).append_column("row", pa.array(range(ROWS)))
        rules: dict[str, Rule] = {kind: Rule(column="t", kind=kind, width=3.6e9, bins=8) for kind in KINDS}

        def batches() -> Iterator[pa.RecordBatch]:
            return iter(rows.to_batches(max_chunksize=100))

        return SourceRows(KINDS, "click", ("row",), batches, ROWS, rules)


def test_this_process_and_duckdb_read_times_alike(tmp_path: Path) -> None:
    assert_same_dataset(Made(), tmp_path, [Arrow(), DuckDB()])


@spark
@quiet
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("unit", [pa.timestamp("ms"), pa.timestamp("us", "America/New_York")], ids=str)
def test_spark_and_duckdb_read_times_alike(tmp_path: Path, unit: Any) -> None:
    assert_same_dataset(every(tmp_path, times(unit)), tmp_path, [DuckDB(), Spark(master="local[2]", memory=1024)])
