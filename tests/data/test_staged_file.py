"""Staged rows: written while the engine reads, read and counted as they are stored."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fieldwise.core.errors import DataError
from fieldwise.data.engines import staged_file, written_counts
from fieldwise.data.engines.duckdb import DuckDB, _Session
from fieldwise.data.engines.duckdb_errors import streamed
from fieldwise.data.engines.engine import LABEL, SPLIT
from fieldwise.data.engines.local import LocalCounts
from fieldwise.data.engines.staged_file import is_plain, write_rows
from fieldwise.data.engines.staging import read_batches, read_file
from fieldwise.data.engines.written_counts import WrittenCounts, count_values
from fieldwise.data.prepare import prepare
from fieldwise.data.table import Table
from tests.data import small_files
from tests.data.small_files import contents

DRAW = np.random.default_rng(0)
ROWS = pa.table(
    {
        LABEL: pa.array(DRAW.integers(0, 2, 500).astype(str)),
        SPLIT: pa.array(DRAW.integers(0, 3, 500).astype(np.int8)),
        "f0": pa.array(DRAW.integers(0, 9, 500).astype(str), mask=DRAW.random(500) < 0.1),
        "f1": pa.array([f"own {i}" for i in range(500)]),
        "f2": pa.array(DRAW.integers(0, 5, 500)),
    }
)
FIELDS = ("f0", "f1", "f2")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Rows in four row groups."""
    monkeypatch.setattr(staged_file, "READ", 70)
    write_rows(ROWS.schema, ROWS.to_batches(70), tmp_path / "0.parquet", 150, WrittenCounts(0))
    return tmp_path


def test_rows_are_read_in_order_and_repeated_text_as_dictionaries(folder: Path) -> None:
    path = folder / "0.parquet"
    about = pq.read_metadata(path)
    assert [about.row_group(i).num_rows for i in range(about.num_row_groups)] == [140, 140, 140, 80]
    assert pa.Table.from_batches(read_file(path)).equals(ROWS)
    stored = list(read_file(path, as_stored=True))
    assert [len(batch) for batch in stored] == [140, 140, 140, 80]  # one dictionary each
    assert [pa.types.is_dictionary(kind) for kind in stored[0].schema.types] == [True, False, True, False, False]
    assert pa.Table.from_batches(stored).cast(ROWS.schema).equals(ROWS)
    repeated = next(read_file(path, ["f1"])).schema
    assert [pa.types.is_dictionary(kind) for kind in repeated.types] == [False, False, False, True, False]


def test_row_groups_of_long_text_are_smaller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staged_file, "READ", 50)
    monkeypatch.setattr(staged_file, "GROUP_BYTES", 2 * ROWS.nbytes // 9)
    write_rows(ROWS.schema, ROWS.to_batches(50), tmp_path / "0.parquet", 500, WrittenCounts(0))
    assert pq.read_metadata(tmp_path / "0.parquet").num_row_groups == 5
    assert pa.Table.from_batches(read_batches(tmp_path)).equals(ROWS)


def test_no_rows_make_an_empty_file(tmp_path: Path) -> None:
    write_rows(ROWS.schema, [], tmp_path / "0.parquet", 10, WrittenCounts(0))
    assert not list(read_file(tmp_path / "0.parquet", as_stored=True))
    assert pq.read_schema(tmp_path / "0.parquet") == ROWS.schema


def test_types_that_engines_store_differently_are_left_to_them() -> None:
    others = [pa.list_(pa.string()), pa.timestamp("us", "UTC"), pa.decimal128(20, 2), pa.binary(), pa.large_string()]
    assert is_plain(ROWS.schema)
    assert not [kind for kind in others if is_plain(pa.schema([("f0", kind)]))]


def expected(name: str) -> dict[Any, int]:
    """Counts of the training rows; of all rows for labels and splits."""
    rows = ROWS.filter(pa.array(np.asarray(ROWS[SPLIT]) == 0)) if name in FIELDS else ROWS
    return {pair["values"]: pair["counts"] for pair in rows[name].value_counts().to_pylist()}


def pairs(table: pa.Table) -> dict[Any, int]:
    """Values and counts; every value once."""
    found = dict(zip(table["value"].to_pylist(), table["count"].to_pylist(), strict=True))
    assert len(found) == table.num_rows
    return found


@pytest.mark.parametrize("threads", [1, 3])
def test_counts_are_those_of_the_training_rows(folder: Path, threads: int) -> None:
    local = LocalCounts([folder], FIELDS, 2**20, threads)
    for index in (0, 1, 2, 0):
        found = pa.Table.from_batches(local.counts(index, 1, ascending=False) or ())
        assert pairs(found) == expected(f"f{index}")


@pytest.mark.parametrize("parts", [1, 3])
def test_rows_are_counted_while_they_are_written(parts: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staged_file, "READ", 70)
    whole = WrittenCounts(2**20)
    for part in range(parts):
        counts = WrittenCounts(2**20)
        rows = ROWS.slice(part * 500 // parts, (part + 1) * 500 // parts - part * 500 // parts)
        write_rows(ROWS.schema, rows.to_batches(70), tmp_path / f"{part}.parquet", 150, counts)
        whole.join(counts)
    for name in ROWS.column_names:
        table = whole.table(name)
        assert table is not None
        assert pairs(table) == expected(name)


def test_columns_with_the_most_values_are_not_counted_beyond_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(written_counts, "_PART_BYTES", 0)
    counts = WrittenCounts(4_000)
    for group in ROWS.to_batches(100):
        counts.add(count_values(pa.Table.from_batches([group])))
    known = [name for name in ROWS.column_names if counts.table(name) is not None]
    assert known == [LABEL, SPLIT, "f0", "f2"]
    assert all(pairs(counts.table(name)) == expected(name) for name in known)
    whole = WrittenCounts(4_000)
    whole.join(counts)
    whole.add(count_values(ROWS))
    assert whole.table("f1") is None  # its counts would be of some rows


def test_too_many_values_are_left_to_the_engine(folder: Path) -> None:
    local = LocalCounts([folder], FIELDS, 500, 2)
    found = [local.counts(index, 1, ascending=False) is not None for index in range(3)]
    assert found == [True, False, True]


@pytest.mark.parametrize("where", ["read again", "engine"])
def test_values_that_do_not_fit_make_the_same_dataset(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_files.awkward(tmp_path / "a.csv", 900)
    source = Table(raw=tmp_path / "a.csv", label="click", min_count=3, ignore=("part",), fields=small_files.rules())
    here = prepare(source, tmp_path / "here")
    counts, used = LocalCounts.counts, list[bool]()

    def limited(self: LocalCounts, *given: Any) -> Any:
        self._max_bytes = 2**20 if where == "read again" else 200
        found = counts(self, *given)
        used.append(found is not None)
        return found

    monkeypatch.setattr(LocalCounts, "counts", limited)
    monkeypatch.setattr(WrittenCounts, "table", lambda *_: None)
    assert contents(prepare(source, tmp_path / "there").folder) == contents(here.folder)
    assert all(used) if where == "read again" else not all(used)


def test_an_error_of_duckdb_while_it_hands_over_rows_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = _Session.read

    def with_little_memory(self: _Session, files: Any) -> Any:
        found = read(self, files)
        self._con.con.execute("SET memory_limit = '10MiB'")
        return found

    monkeypatch.setattr(_Session, "read", with_little_memory)
    (tmp_path / "a.csv").write_text("click,a\n" + '1,"2"\n0,3\n' * 200, encoding="utf-8")
    with pytest.raises(DataError, match=r"DuckDB needs more memory for 3 columns \(Out of Memory Error: .*memory=MiB"):
        prepare(Table(raw=tmp_path / "a.csv", label="click"), tmp_path / "out", engine=DuckDB())
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Out of Memory Error: no block", duckdb.OutOfMemoryException),
        ("IO Error: cannot read", duckdb.IOException),
        ("Conversion Error: 'x'", duckdb.Error),
    ],
)
def test_text_of_an_error_that_arrow_passes_on_is_an_error_of_duckdb(text: str, kind: type[Exception]) -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        yield ROWS.to_batches()[0]
        raise OSError(text)

    found = streamed(batches())
    assert len(next(found)) == 500
    with pytest.raises(kind, match=text.partition(":")[2]):
        next(found)
