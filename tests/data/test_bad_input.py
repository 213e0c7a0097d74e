"""Malformed raw rows: an error of one line, and no partial output."""

import gzip
import re
import zipfile
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fieldwise.cli.options import settings_of
from fieldwise.core.errors import DataError, FieldwiseError
from fieldwise.core.hints import in_flags
from fieldwise.data.engines.arrow import Arrow
from fieldwise.data.engines.duckdb import DuckDB
from fieldwise.data.prepare import prepare as prepare_rows
from fieldwise.data.source import Source, SourceRows
from fieldwise.data.split import ColumnSplit
from fieldwise.data.store import Dataset
from fieldwise.data.table import Table
from fieldwise.exports.raw_rows import RawRows
from fieldwise.pipeline import stages as pipeline
from tests.data import small_files

GOOD = [f"{i % 2},{i % 7},u{i % 50}" for i in range(3_000)]


def lines(**changes: str) -> list[str]:
    """3,000 good lines with some replaced, by line number; the header is line 1."""
    found = list(GOOD)
    for number, text in changes.items():
        found[int(number.lstrip("_")) - 2] = text
    return found


def write(path: Path, rows: list[str], encoding: str = "utf-8") -> None:
    path.write_bytes("\n".join(["click,a,b", *rows, ""]).encode(encoding))


def prepare(raw: Path, out: Path, *sets: str, **flags: str | None) -> Dataset:
    """Runs `fieldwise prepare` in this process."""
    given = {"source": "table", "label": "click", "raw": raw, **flags}
    with in_flags():
        return pipeline.prepare(settings_of(None, None, list(sets), **given), out)


def refused(raw: Path, folder: Path, *says: str, sets: tuple[str, ...] = (), **flags: str | None) -> None:
    with pytest.raises(FieldwiseError) as caught:
        prepare(raw, folder / "out", *sets, **flags)
    message = str(caught.value)
    for words in says:
        assert words in message
    assert len(message.splitlines()) == 1
    assert [p.name for p in folder.iterdir() if "out" in p.name] == []


CASES: dict[str, tuple[list[str], str, dict[str, Any], tuple[str, ...]]] = {
    "too few columns": (lines(_1234="1,2"), "utf-8", {}, ("line 1,234:", "'1,2'", "--bad-rows skip")),
    "too many columns": (lines(_77="1,2,3,4"), "utf-8", {}, ("line 77:", "'1,2,3,4'", "Bad rows in total: 1.")),
    "label not 0/1": (
        [f"{('yes', 'no')[i % 2]},{i % 7},u{i}" for i in range(300)],
        "utf-8",
        {},
        ("holds ['no', 'yes']. Allowed: 0 and 1", """data.positive=["yes"]'"""),
    ),
    "empty label": (lines(_9=",1,u2", _11=",1,u3"), "utf-8", {}, ("Label 'click' is empty in 2 rows",)),
    "empty mapped label": (
        [f"{'' if i == 2_000 else i},{i % 7},u{i % 50}" for i in range(3_000)],
        "utf-8",
        {"sets": ('data.positive=["5"]',)},
        ("Label 'click' is empty in 1 rows",),
    ),
    "mapped to nothing": (GOOD, "utf-8", {"sets": ('data.positive=["5"]',)}, ("has no value ['5']",)),
    "one value": ([f"{i % 2},7,same" for i in range(300)], "utf-8", {}, ("only one value in: 'a', 'b'",)),
    "minimum count beyond any": (
        GOOD,
        "utf-8",
        {"sets": (f"data.min_count={2**63}",)},
        ("[data] min_count = 9223372036854775808", "less than 9223372036854775808"),
    ),
    "a field's minimum count beyond any": (
        GOOD,
        "utf-8",
        {"sets": (f"data.fields.a.min_count={2**63}",)},
        ("min_count", "less than 9223372036854775808"),
    ),
    "no training rows": (GOOD[:1], "utf-8", {}, ("No rows in split train",)),
    "no rows": ([], "utf-8", {}, ("holds no rows",)),
    "not UTF-8": (
        [f"{i % 2},{i % 7},é{i % 9}" for i in range(300)],
        "latin-1",
        {},
        ("is not UTF-8", "--set data.encoding=latin-1"),
    ),
    "open quote": (lines(_300='1,"open,3'), "utf-8", {}, ("line 300:", "unterminated quote")),
    "text for a number": (
        [f"{i % 2},{'x' if i == 12_000 else i / 8},u{i % 50}" for i in range(13_000)],
        "utf-8",
        {},
        ("Field 'a' is binned as a number but holds ['x']", "data.fields.a.kind=category"),
    ),
    "unknown label": (GOOD, "utf-8", {"label": "clik"}, ("Did you mean 'click'?",)),
    "unknown field": (GOOD, "utf-8", {"sets": ("data.fields.c.kind=category",)}, ("[data.fields] unknown 'c'",)),
    "unknown rule": (GOOD, "utf-8", {"sets": ("data.fields.a.kindd=x",)}, ("[data.fields.a]", "Did you mean 'kind'?")),
    "unknown key": (GOOD, "utf-8", {"sets": ('split.key=["c"]',)}, ("[split.key] unknown 'c'",)),
    "too few times": (GOOD, "utf-8", {"sets": ("split.name=time", "split.column=a")}, ("too few distinct times",)),
    "empty times": (
        [f"{i % 2},{'' if i % 90 == 5 else i},u{i % 50}" for i in range(900)],
        "utf-8",
        {"sets": ("split.name=time", "split.column=a")},
        ("Split by time: column 'a' has no time in 10 of 900 rows. Allowed: at most 1%",),
    ),
    "unknown engine": (GOOD, "utf-8", {"engine": "dukdb"}, ("Did you mean 'duckdb'?",)),
    "too little memory": (GOOD, "utf-8", {"sets": ("engine.memory=100",)}, ("[engine] memory = 100", "equal to 1024")),
    "master without spark": (GOOD, "utf-8", {"master": "local"}, ("[engine] unknown 'master'",)),
}


@pytest.mark.parametrize("name", CASES)
def test_bad_files_are_refused(name: str, tmp_path: Path) -> None:
    rows, encoding, flags, says = CASES[name]
    write(tmp_path / "raw.csv", rows, encoding)
    refused(tmp_path / "raw.csv", tmp_path, *says, **flags)


@pytest.mark.parametrize(("clicks", "says"), [
    ({"train": 0}, "Split train has only one class: 0 clicks in 80 rows"),
    ({"valid": 1}, "Split valid has only one class: 10 clicks in 10 rows"),
    ({"test": 0}, "Split test has only one class: 0 clicks in 10 rows"),
])  # fmt: skip
def test_a_split_with_one_class_is_named(clicks: dict[str, int], says: str, tmp_path: Path) -> None:
    parts = ["train"] * 8 + ["valid", "test"]
    rows = [f"{clicks.get(parts[i % 10], i // 10 % 2)},{parts[i % 10]},u{i % 5}" for i in range(100)]
    write(tmp_path / "raw.csv", rows)
    source, split = Table(raw=tmp_path / "raw.csv", label="click"), ColumnSplit(column="a")
    with pytest.raises(DataError, match=says):
        prepare_rows(source, tmp_path / "out", split)
    assert [path.name for path in tmp_path.iterdir()] == ["raw.csv"]


def test_one_class_is_named_where_rows_are_counted_in_this_process(tmp_path: Path) -> None:
    table = pa.table({"row": range(2_000), "a": [i % 7 for i in range(2_000)], "click": [1] * 2_000})

    class Clicked(Source):
        def open(self) -> SourceRows:
            return SourceRows(("a",), "click", ("row",), lambda: iter(table.to_batches()))

    with pytest.raises(DataError, match=r"Label 'click' is 1 in all 2,000 rows"):
        prepare_rows(Clicked(), tmp_path / "out", engine=Arrow())
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("damage", ["early", "middle", "cut"])
@pytest.mark.parametrize("bad_rows", ["stop", "skip"])
def test_a_damaged_gz_is_told_wherever_the_damage_is(damage: str, bad_rows: str, tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    text = "click,a,b\n" + "".join(f"{i % 2},{i % 7},{draw.random()}\n" for i in range(40_000))
    whole = gzip.compress(text.encode())
    at = {"early": 3_000, "middle": len(whole) // 2, "cut": len(whole)}[damage]
    found = whole[:at] + bytes(50) + whole[at + 50 :] if damage != "cut" else whole[: at // 2]
    (tmp_path / "raw.csv.gz").write_bytes(found)
    refused(tmp_path / "raw.csv.gz", tmp_path, "raw.csv.gz'", bad_rows=bad_rows)
    with pytest.raises(DataError, match=r"raw\.csv\.gz' (cannot be read|is damaged)"):
        list(RawRows(tmp_path / "raw.csv.gz").batches(["a"]))


NESTED: dict[str, pa.Array] = {
    "struct": pa.array([{"x": i} for i in range(300)]),
    "nested list": pa.array([[[i % 3]] for i in range(300)]),
    "list of structs": pa.array([[{"x": i % 2}] for i in range(300)]),
    "map": pa.array([[("k", i)] for i in range(300)], pa.map_(pa.string(), pa.int64())),
    "bytes": pa.array([b"%d" % (i % 5) for i in range(300)]),
}


@pytest.mark.parametrize("name", NESTED)
def test_nested_parquet_columns_are_named_and_can_be_ignored(name: str, tmp_path: Path) -> None:
    columns = {"click": [i % 2 for i in range(300)], "a": [i % 7 for i in range(300)], name: NESTED[name]}
    pq.write_table(pa.table(columns), tmp_path / "raw.parquet")
    refused(tmp_path / "raw.parquet", tmp_path, f"Column '{name}' holds", f"""data.ignore=["{name}"]""")
    data = prepare(tmp_path / "raw.parquet", tmp_path / "out", f'data.ignore=["{name}"]')
    assert data.schema.names == ("a",)


def test_a_late_byte_that_is_not_utf8_is_found(tmp_path: Path) -> None:
    write(tmp_path / "raw.csv", [f"{i % 2},{i % 7},{'é' if i == 20_000 else 'e'}" for i in range(30_000)], "latin-1")
    refused(tmp_path / "raw.csv", tmp_path, "line 20,002:", "not utf-8")


def test_bad_rows_can_be_skipped_and_are_counted(tmp_path: Path) -> None:
    write(tmp_path / "raw.csv", lines(_5="1,2", _1234="1,2,3,4", _2000=""))  # an empty line is not a row
    data = prepare(tmp_path / "raw.csv", tmp_path / "out", bad_rows="skip")
    assert (data.info["skipped"], sum(data.info["rows"].values())) == (2, 2_997)


def test_a_bad_row_is_counted_once_where_times_are_read_first(tmp_path: Path) -> None:
    write(tmp_path / "raw.csv", [f"{i % 2},{i},u{i % 5}" for i in range(500)] + ["1,2"])
    data = prepare(tmp_path / "raw.csv", tmp_path / "out", "split.name=time", "split.column=a", bad_rows="skip")
    assert (data.info["skipped"], sum(data.info["rows"].values())) == (1, 500)


@pytest.mark.slow
def test_a_bad_row_far_down_is_told_by_line_and_text_and_can_be_skipped(tmp_path: Path) -> None:
    good = small_files.criteo(tmp_path / "part.txt", 10_000).read_bytes()
    raw, bad = tmp_path / "raw.txt", b"1\t2\tthe bad one\n"
    head = b"".join(good.splitlines(keepends=True)[:4_566])
    with raw.open("wb") as file:  # 300 MB, so that DuckDB reads several buffers
        for _ in range(123):
            file.write(good)
        file.write(head + bad)
        for _ in range(20):
            file.write(good)
    says = ("line 1,234,567:", r"'1\t2\tthe bad one'", "Bad rows in total: 1.", "--bad-rows skip")
    refused(raw, tmp_path, *says, source="criteo", label=None)
    data = prepare(raw, tmp_path / "out", source="criteo", label=None, bad_rows="skip")
    assert (data.info["skipped"], sum(data.info["rows"].values())) == (1, 1_434_566)


def test_more_values_than_memory_are_refused(tmp_path: Path) -> None:
    class Small(DuckDB):
        vocabulary_bytes: ClassVar[int] = 20_000

    write(tmp_path / "raw.csv", [f"{i % 2},{i % 7},u{i // 2}" for i in range(6_000)])
    with pytest.raises(DataError, match="Field 'b' has too many values for the memory setting: 2,"):
        prepare_rows(Table(raw=tmp_path / "raw.csv", label="click"), tmp_path / "out", engine=Small())
    assert [path.name for path in tmp_path.iterdir()] == ["raw.csv"]


def test_folders_and_globs_without_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw" / "a.json").write_text("{}")
    refused(tmp_path / "raw", tmp_path, "holds no matching file", ".parquet")
    refused(tmp_path / "raw" / "*.csv", tmp_path, "does not exist")
    (tmp_path / "raw" / "b.parquet").write_text("no")
    refused(tmp_path / "raw", tmp_path, "is no Parquet file")
    (tmp_path / "raw" / "c.csv").write_text("a\n")
    refused(tmp_path / "raw", tmp_path, "mixes parquet and text")


@pytest.mark.parametrize(("start", "says"), [
    (b"PK\x03\x04\x14\x00click,a\n1,2\n", "is a zip archive or an Excel workbook, not a table in text. Name it .zip"),
    (b"\x1f\x8b\x08\x00\x00", "is compressed by gzip, not a table in text. Give it a name that ends with .gz"),
    (b"BZh91AY&SYxx", "is compressed by bzip2, not a table in text. Give it a name that ends with .bz2"),
    (b"\x28\xb5\x2f\xfd\x04", "is compressed by zstd"),
    (b"PAR1\x15\x04", "is Parquet, not a table in text. Give it a name that ends with .parquet"),
    ("click,a\n1,2\n".encode("utf-16"), "is UTF-16 text"),
    (b"\x89PNG\r\n", "is a picture or a PDF, not a table in text. Give a table: CSV"),
    (b"\n<!DOCTYPE html>", "is a web page or XML, not a table in text. Was the download an error page?"),
    (b"version https://git-lfs.github.com/spec/v1\n", "is a pointer of Git LFS"),
    (b'[{"click": 1, "a": 2}]', "is a JSON array, not a table in text. Write one JSON object per line"),
    (b"\x01\x00\x02", "is binary"),
    (b"some prose\nwithout a table\n", "is no table with a column 'click': its first line is 'some prose'."),
])  # fmt: skip
def test_a_file_that_is_no_text_is_named_by_what_it_is(start: bytes, says: str, tmp_path: Path) -> None:
    (tmp_path / "raw.csv").write_bytes(start)
    with zipfile.ZipFile(tmp_path / "raw.zip", "w") as archive:
        archive.writestr("inner.txt", start)
    for name, named in (("raw.csv", "raw.csv' "), ("raw.zip", "raw.zip' holds 'inner.txt', which ")):
        with pytest.raises(DataError, match=re.escape(named + says)) as error:
            Table(raw=tmp_path / name, label="click").open()
        assert "latin" not in str(error.value)


@pytest.mark.parametrize("header", ["PAR1,click", "BZhour,click", "PK,click"])
def test_a_header_that_begins_like_another_format_is_text(header: str, tmp_path: Path) -> None:
    (tmp_path / "raw.csv").write_text(f"{header}\n" + "".join(f"{i % 7},{i % 2}\n" for i in range(50)))
    assert Table(raw=tmp_path / "raw.csv", label="click").open().columns == tuple(header.split(","))


@pytest.mark.parametrize(("text", "what"), [("", "is empty"), ("\n1,2\n", "begins with an empty line")])
def test_a_file_without_a_header_line_is_named_by_what_it_is(tmp_path: Path, text: str, what: str) -> None:
    (tmp_path / "raw.csv").write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=what):
        Table(raw=tmp_path / "raw.csv", label="click").open()
