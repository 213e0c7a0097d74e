"""The shared expressions of the engines, run in DuckDB: staged rows, counts, splits and their errors."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ibis
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fieldwise.core.errors import DataError
from fieldwise.data.engines import staging
from fieldwise.data.engines.duckdb import DuckDB, _Session
from fieldwise.data.engines.engine import LABEL, SPLIT, Preparation, Staged
from fieldwise.data.engines.session import ROW
from fieldwise.data.engines.split_files import check_assigned, files_of_splits
from fieldwise.data.engines.staging import column_bytes
from fieldwise.data.engines.values import as_number, columns_of
from fieldwise.data.rules import Rule
from fieldwise.data.source import Files, SourceRows
from fieldwise.data.split import ColumnSplit, FileSplit, RandomSplit, SplitRule, TimeSplit

RULES = {"city": Rule(column="city"), "price": Rule(column="price", kind="quantile")}
TABLE = pa.table({
    "city": ["a", "b", "a", None, "a", "b", "c", "a"],
    "price": ["10", "9", "10", "x", " 2 ", "9", "", "1e1"],
    "time": [3, 1, 2, 8, 5, 4, 7, 6],
    "part": ["train", "train", "train", "train", "train", "valid", "test", "test"],
    "click": [0, 1, 0, 1, 1, 0, 0, 1],
})  # fmt: skip


def csv(path: Path, table: pa.Table = TABLE) -> Files:
    """Writes a table as CSV; null is an empty cell."""
    rows = [table.column_names, *(["" if v is None else str(v) for v in row.values()] for row in table.to_pylist())]
    path.write_text("\n".join(map(",".join, rows)) + "\n")
    return Files((path,), tuple(table.column_names), ("city", "price"), "click", {})


def parquet(path: Path, table: pa.Table = TABLE) -> Files:
    """Writes a table as Parquet."""
    pq.write_table(table, path)
    return Files((path,), tuple(table.column_names), ("city", "price"), "click", {}, delimiter=None)


def generated(path: Path, table: pa.Table = TABLE) -> SourceRows:
    """The table as rows of this process, in two batches."""

    def batches() -> Iterator[pa.RecordBatch]:
        return iter(table.to_batches(max_chunksize=5))

    return SourceRows(("city", "price"), "click", ("time",), batches)


def stage(rows: Files | SourceRows, work: Path, split: SplitRule, rules: dict[str, Rule] = RULES) -> Staged:
    """Stages rows in DuckDB."""
    work.mkdir()
    return DuckDB(threads=1).stage(Preparation(rows, rules, split, work, lambda *_: None))


def counts(staged: Staged, index: int, min_count: int = 1, ascending: bool = False) -> list[tuple[Any, int]]:
    """Values and counts of a field in the order of the engine."""
    table = pa.Table.from_batches(staged.counts(index, min_count, ascending))
    return list(zip(table["value"].to_pylist(), table["count"].to_pylist(), strict=True))


@pytest.mark.parametrize("write", [csv, parquet, generated])
def test_staged_rows_keep_the_order_and_have_exact_counts(write: Callable[[Path], Any], tmp_path: Path) -> None:
    staged = stage(write(tmp_path / "a"), tmp_path / "work", ColumnSplit(column="part"))
    rows = pa.Table.from_batches(staged.batches())
    assert rows.column_names == [LABEL, SPLIT, "f0", "f1"]
    assert rows["f0"].to_pylist() == TABLE["city"].to_pylist()
    assert rows[LABEL].to_pylist() == [str(click) for click in TABLE["click"].to_pylist()]
    assert rows[SPLIT].to_pylist() == [0, 0, 0, 0, 0, 1, 2, 2]
    assert (staged.rows, staged.labels, staged.skipped) == ([5, 1, 2], {"0": 4, "1": 4}, 0)


@pytest.mark.parametrize("local", [True, False], ids=["this process", "DuckDB"])
def test_counts_are_of_training_rows_and_omit_rare_values(
    local: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not local:
        monkeypatch.setattr(_Session, "max_local_rows", 0)
    staged = stage(parquet(tmp_path / "a"), tmp_path / "work", ColumnSplit(column="part"))
    assert sorted(counts(staged, 0), key=str) == [("a", 3), ("b", 1), (None, 1)]
    assert counts(staged, 0, min_count=2) == [("a", 3)]
    numbers = [pair for pair in counts(staged, 1, ascending=True) if pair[0] != "x"]
    assert numbers == [(" 2 ", 1), ("9", 1), ("10", 2)]  # as numbers, not as text
    assert not [path for path in (tmp_path / "work").iterdir() if path.name == "counts"]


@pytest.mark.parametrize("column", ["city", "price", "time"])
def test_a_large_column_is_counted_in_parts(column: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_Session, "max_local_rows", 0)
    rules = {column: Rule(column=column)}
    staged = stage(parquet(tmp_path / "a"), tmp_path / "work", ColumnSplit(column="part"), rules)
    whole = staged.totals([0], 2), sorted(counts(staged, 0), key=str)
    queries: list[Path] = []
    write = _Session.write

    def watched(self: _Session, rows: Any, folder: Path, ordered: bool) -> Any:
        queries.append(folder)
        return write(self, rows, folder, ordered)

    monkeypatch.setattr(_Session, "write", watched)
    staged._session.max_query_bytes = column_bytes(tmp_path / "work" / "rows-0", "f0") // 3  # type: ignore[attr-defined]
    assert (staged.totals([0], 2), sorted(counts(staged, 0), key=str)) == whole
    names = [folder.name for folder in queries]
    assert names.count("totals") == names.count("counts") >= 3


def test_rare_lists_are_counted_at_any_minimum(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_Session, "max_local_rows", 0)
    table = TABLE.append_column("tags", pa.array([["x"], ["x", "y"], ["x"], [], ["z"], ["x"], ["x"], ["x"]]))
    staged = stage(
        parquet(tmp_path / "a", table), tmp_path / "work", ColumnSplit(column="part"), {"tags": Rule(column="tags")}
    )
    assert sorted(counts(staged, 0, min_count=2)) == [([], 1), (["x"], 2), (["x", "y"], 1), (["z"], 1)]


def test_a_random_split_is_the_hash_of_key_or_row_number(tmp_path: Path) -> None:
    split = RandomSplit(seed=7, shares=(0.4, 0.3, 0.3))
    numbered = TABLE.append_column(ROW, pa.array(range(8)))
    for name, write, rule, key in (
        ("number", parquet, split, (ROW,)),
        ("source", generated, split, ("time",)),
        ("setting", csv, split.model_copy(update={"key": ("city", "time")}), ("city", "time")),
    ):
        staged = stage(write(tmp_path / name), tmp_path / f"{name}-work", rule)
        expected = rule.assign(numbered.combine_chunks().to_batches()[0], key)
        assert pa.Table.from_batches(staged.batches())[SPLIT].to_pylist() == expected.tolist()


@pytest.mark.parametrize("write", [csv, parquet])
def test_a_time_split_cuts_at_the_shares(write: Callable[[Path, pa.Table], Files], tmp_path: Path) -> None:
    table = TABLE.set_column(2, "time", pa.array([30, 9, 20, 800, 50, 40, 700, 50]))  # 9 < 20 as numbers
    staged = stage(write(tmp_path / "a", table), tmp_path / "work", TimeSplit(column="time", shares=(0.5, 0.25, 0.25)))
    assert pa.Table.from_batches(staged.batches())[SPLIT].to_pylist() == [0, 0, 0, 2, 1, 0, 2, 1]
    assert not (tmp_path / "work" / "times").exists()


@pytest.mark.parametrize(
    ("split", "rules", "says"),
    [
        (RandomSplit(key=("citi",)), RULES, r"\[split.key\] unknown 'citi'. Did you mean 'city'\?"),
        (TimeSplit(column="tim"), RULES, r"\[split.column\] unknown 'tim'"),
        (RandomSplit(), {"a": Rule(column="a")}, r"\[data.fields\] unknown 'a'"),
        (ColumnSplit(column="part", test="other"), RULES, "2 rows have another value. Allowed: 'train', 'valid', 'o"),
        (TimeSplit(column="city"), RULES, r"Column 'city': \d of \d texts are no times, such as '"),
        (TimeSplit(column="part"), RULES, "Column 'part': 8 of 8 texts are no times, such as 'train', 'valid', 'test'"),
    ],
)
def test_rows_that_cannot_be_staged_are_refused(
    split: SplitRule, rules: dict[str, Rule], says: str, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=says) as caught:
        stage(parquet(tmp_path / "a"), tmp_path / "work", split, rules)
    assert ROW not in str(caught.value)  # not a column of the user


def test_parquet_files_of_other_columns_and_sources_without_rows_are_refused(tmp_path: Path) -> None:
    files = parquet(tmp_path / "a.parquet")
    pq.write_table(TABLE.drop_columns("time"), tmp_path / "b.parquet")
    both = files.with_paths((*files.paths, tmp_path / "b.parquet"))
    with pytest.raises(DataError, match=r"b.parquet' has the columns city, price, part, click; .*Allowed: the same"):
        stage(both, tmp_path / "work", RandomSplit())
    with pytest.raises(DataError, match="holds no rows"):
        stage(generated(tmp_path, TABLE.slice(0, 0)), tmp_path / "other", RandomSplit())


def test_files_of_splits_are_disjoint_and_of_one_format(tmp_path: Path) -> None:
    files = parquet(tmp_path / "a.parquet")
    for name in ("b", "c"):
        parquet(tmp_path / f"{name}.parquet")
    split = FileSplit(valid=tmp_path / "b.parquet", test=tmp_path / "c.parquet")
    assert files_of_splits(files, RandomSplit()) == [files]
    assert [part.paths[0].name for part in files_of_splits(files, split)] == ["a.parquet", "b.parquet", "c.parquet"]
    staged = stage(files, tmp_path / "work", split)
    assert (staged.rows, staged.labels) == ([8, 8, 8], {"0": 12, "1": 12})
    with pytest.raises(DataError, match=r"a.parquet' is in train and in valid"):
        files_of_splits(files, FileSplit(valid=tmp_path / "a.parquet", test=tmp_path / "c.parquet"))
    csv(tmp_path / "b.csv")
    with pytest.raises(DataError, match=r"b.csv' is text, the training rows are Parquet"):
        files_of_splits(files, FileSplit(valid=tmp_path / "b.csv", test=tmp_path / "c.parquet"))


def test_batches_are_limited_in_rows_and_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = pa.table({"number": range(5_000), "text": ["x"] * 5_000, "list": [["x"]] * 5_000})
    (tmp_path / "rows").mkdir()
    pq.write_table(table.slice(0, 3_000), tmp_path / "rows" / "0.parquet")
    pq.write_table(table.slice(3_000), tmp_path / "rows" / "1.parquet")
    monkeypatch.setattr(staging, "BATCH", 2_000)
    batches = list(staging.read_batches(tmp_path / "rows", ["text", "list"]))
    assert [len(batch) for batch in batches] == [2_000, 1_000, 2_000]
    assert pa.types.is_dictionary(batches[0].column("text").type)
    assert pa.Table.from_batches(batches)["number"].to_pylist() == list(range(5_000))
    monkeypatch.setattr(staging, "BATCH_BYTES", 1)
    assert {len(batch) for batch in staging.read_batches(tmp_path / "rows")} == {1}


def test_columns_are_found_by_name_and_sorted_as_numbers() -> None:
    names = ("a", "A", "t")
    rows = ibis.table({"c0": "string", "c1": "int64", "c2": "timestamp", ROW: "int64"}, name="rows")
    assert [column.get_name() for column in columns_of(rows, names, ("A", "a"), "data.fields")] == ["c1", "c0"]
    with pytest.raises(DataError, match=r"^\[data.label\] unknown 'c'.*Choose from: A, a, t\.$"):
        columns_of(rows, names, ("c",), "data.label")
    assert as_number(rows.c0).type().is_float64()
    assert as_number(rows.c1).equals(rows.c1)
    assert as_number(rows.c2).equals(rows.c2)
    check_assigned(0, ColumnSplit(column="a"))
