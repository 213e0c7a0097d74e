"""Wide tables: the cost grows linearly with the columns; few rows are counted in this process."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq
import pytest

from fieldwise.core.errors import DataError
from fieldwise.data.check import check
from fieldwise.data.engines.duckdb import DuckDB, _Session
from fieldwise.data.prepare import prepare
from fieldwise.data.split import FileSplit, SplitRule
from fieldwise.data.table import Table
from tests.data import small_files
from tests.data.small_files import contents


def write(path: Path, columns: int) -> Path:
    """Writes 300 rows of text, integers and floats."""
    draw = np.random.default_rng(0)
    integers, floats = draw.integers(0, 9, (columns, 300)), draw.random((columns, 300))
    found = {f"c{i}": (integers[i].astype(str), integers[i], floats[i])[i % 3] for i in range(columns)}
    pq.write_table(pa.table({"click": draw.integers(0, 2, 300), **found}), path)
    return path


def scanned(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Records the number of columns of each table that DuckDB scans from now on."""
    widths: list[int] = []
    scan = _Session.scan

    def watched(self: _Session, folder: Path, columns: Sequence[str]) -> Any:
        table = scan(self, folder, columns)
        widths.append(len(table.columns))
        return table

    monkeypatch.setattr(_Session, "scan", watched)
    return widths


@pytest.mark.parametrize("columns", [10, 200])
def test_few_rows_are_counted_without_a_query_for_each_column(
    columns: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writes: list[Path] = []
    write_rows = _Session.write

    def watched(self: _Session, rows: Any, folder: Path, ordered: bool) -> Any:
        writes.append(folder)
        return write_rows(self, rows, folder, ordered)

    monkeypatch.setattr(_Session, "write", watched)
    calls: list[tuple[str, int, int | None]] = []
    source = Table(raw=write(tmp_path / "a.parquet", columns), label="click")
    prepare(source, tmp_path / "out", progress=lambda *now: calls.append(now))
    assert [folder.name for folder in writes] == ["rows-0"]  # for any number of columns
    for stage in ("fit vocabularies", "write vocabularies"):
        assert [now[1:] for now in calls if now[0] == stage][:columns] == [(i, columns) for i in range(columns)]


def test_many_rows_are_counted_in_queries_that_see_one_column_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_Session, "max_local_rows", 0)
    widths = scanned(monkeypatch)
    prepare(Table(raw=write(tmp_path / "a.parquet", 30), label="click"), tmp_path / "out")
    assert set(widths) == {2}  # the split and a field; labels and splits are counted while rows are written
    assert len(widths) <= 2 + 3 * 30  # quantiles take two more passes


@pytest.mark.parametrize("name", ["random", "files"])
def test_counting_in_this_process_and_in_duckdb_makes_the_same_dataset(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for part in ("a", "b", "c"):
        small_files.awkward(tmp_path / f"{part}.csv", 900)
    raw = tmp_path / ("a.csv" if name == "files" else "*.csv")
    split: SplitRule | None = FileSplit(valid=tmp_path / "b.csv", test=tmp_path / "c.csv") if name == "files" else None
    source = Table(raw=raw, label="click", min_count=3, ignore=("part",), fields=small_files.rules())
    here = prepare(source, tmp_path / "here", split)
    monkeypatch.setattr(_Session, "max_local_rows", 0)
    assert contents(prepare(source, tmp_path / "there", split).folder) == contents(here.folder)


def test_constant_columns_of_many_rows_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = {"one": ["x"] * 300, "two": [2013] * 300, "a": list(range(10)) * 30, "click": [0, 1, 1] * 100}
    pq.write_table(pa.table(rows), tmp_path / "a.parquet")
    monkeypatch.setattr(_Session, "max_local_rows", 0)
    data = prepare(Table(raw=tmp_path / "a.parquet", label="click"), tmp_path / "out")
    assert data.info["dropped"] == {"one": "only the value 'x'", "two": "only the value '2013'"}


def test_types_of_parquet_are_counted_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = np.random.default_rng(1)
    some = draw.random(500) < 0.1
    columns = {
        "click": pa.array(draw.integers(0, 2, 500)),
        "text": pa.array(draw.integers(0, 20, 500).astype(str), mask=some),
        "whole": pa.array(draw.integers(-5, 5, 500), mask=some),
        "tiny": pa.array(draw.integers(0, 5, 500).astype(np.uint8)),
        "huge": pa.array(2**63 + draw.integers(0, 5, 500).astype(np.uint64)),
        "float": pa.array(np.where(some, np.nan, draw.random(500).round(1))),
        "truth": pa.array(draw.random(500) < 0.5, mask=some),
        "day": pa.array(draw.integers(0, 9, 500).astype(np.int32)).cast(pa.date32()),
        "moment": pa.array(draw.integers(0, 9, 500) * 10**9).cast(pa.timestamp("us", "Europe/Zurich")),
        "list": pa.array([["x", "y", "z"][: i % 4] for i in range(500)]),
        "coded": pa.array(draw.integers(0, 6, 500).astype(str)).dictionary_encode(),
        "decimal": pa.array(draw.integers(0, 6, 500)).cast(pa.decimal128(22, 2)),
    }
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    source = Table(raw=tmp_path / "a.parquet", label="click", min_count=2)
    here = prepare(source, tmp_path / "here", engine=DuckDB(threads=1))
    monkeypatch.setattr(_Session, "max_local_rows", 0)
    assert contents(prepare(source, tmp_path / "there").folder) == contents(here.folder)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_more_columns_than_an_engine_ends_with_are_refused(kind: str, tmp_path: Path) -> None:
    table = pa.table({f"c{i}": ["1"] for i in range(20_001)})
    path = tmp_path / f"a.{kind}"
    csv.write_csv(table, path) if kind == "csv" else pq.write_table(table, path)
    with pytest.raises(DataError, match=r"has 20,001 columns. Allowed: at most 20,000"):
        prepare(Table(raw=path, label="c0"), tmp_path / "out")


def test_many_columns_of_text_need_little_memory(tmp_path: Path) -> None:
    text = pa.table({f"c{i}": [str(row % 9) for row in range(300)] for i in range(200)})
    pq.write_table(text.append_column("click", pa.array([0, 1, 1] * 100)), tmp_path / "a.parquet")
    found = check(tmp_path / "a.parquet", "click", engine=DuckDB(memory=1024))
    assert set(found.kinds.values()) == {"category"}
