"""Simple text is read in this process and makes the dataset that DuckDB makes; all other text is left to DuckDB."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from fieldwise.core.errors import DataError
from fieldwise.data.engines import duckdb, simple_text
from fieldwise.data.engines.duckdb import _Session
from fieldwise.data.engines.simple_text import NotSimpleError, read_simple
from fieldwise.data.prepare import prepare
from fieldwise.data.source import Files
from fieldwise.data.split import FileSplit, RandomSplit, SplitRule
from fieldwise.data.table import Table
from tests.data.small_files import contents

DRAW = np.random.default_rng(3)
CELLS = [(str(i % 2), str(DRAW.integers(0, 30)), "" if i % 11 == 0 else f"é{DRAW.integers(0, 9)}") for i in range(390)]
CELLS += [("0", "NA", " é1 "), ("1", " 7", "?"), ("0", "-", "null"), ("1", "", " ")]
LINES = ["click,a,b", *(",".join(cells) for cells in CELLS)]


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Records whether text was read in this process, for every part of a split."""
    found: list[bool] = []
    write_text = _Session.write_text

    def watched(self: _Session, *given: Any) -> Any:
        counts = write_text(self, *given)
        found.append(counts is not None)
        return counts

    monkeypatch.setattr(_Session, "write_text", watched)
    monkeypatch.setattr(simple_text, "_BLOCK", 512)
    monkeypatch.setattr(simple_text, "_AHEAD", 64)
    return found


def same(source: Table, tmp_path: Path, split: SplitRule | None = None) -> None:
    """Prepares with and without reading here, and compares the datasets."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(duckdb, "may_be_simple", lambda files: False)
        there = prepare(source, tmp_path / "there", split)
    here = prepare(source, tmp_path / "here", split)
    assert contents(here.folder) == contents(there.folder)


@pytest.mark.parametrize("name", ["header", "none", "tabs", "no end", "two files", "columns", "share"])
def test_simple_text_makes_the_dataset_of_duckdb(name: str, used: list[bool], tmp_path: Path) -> None:
    lines = LINES[1:] if name == "none" else LINES
    text = "\n".join(lines) + "\n" * (name != "no end")
    (tmp_path / "1.csv").write_text(text.replace(",", "\t") if name == "tabs" else text, encoding="utf-8")
    if name == "two files":
        (tmp_path / "2.csv").write_text("\n".join([LINES[0], *LINES[:150:-1][:200]]), encoding="utf-8")
    given: dict[str, dict[str, Any]] = {"none": {"header": ("click", "a", "b")}, "columns": {"ignore": ("a",)}}
    split = RandomSplit(seed=5, shares=(0.5, 0.3, 0.2)) if name == "share" else None
    same(Table(raw=tmp_path / "*.csv", label="click", **given.get(name, {})), tmp_path, split)
    assert used == [False, True]


def test_every_part_of_a_split_by_files_is_read_here(used: list[bool], tmp_path: Path) -> None:
    for name, start in (("train", 1), ("test", 200)):
        (tmp_path / f"{name}.csv").write_text("\n".join([LINES[0], *LINES[start : start + 200]]), encoding="utf-8")
    split = FileSplit(test=tmp_path / "test.csv", valid_share=0.2)
    same(Table(raw=tmp_path / "train.csv", label="click"), tmp_path, split)
    assert used == [False, False, True, True]


AWKWARD = {
    "quotes": '1,"7",é1',
    "a quote": '1,7,a"b',
    "carriage returns": "\r",
    "empty line": "",
    "zero byte": "1,7,a\0b",
    "long line": "1,7," + "x" * 600,
}


@pytest.mark.parametrize("name", AWKWARD)
def test_other_text_is_left_to_duckdb(name: str, used: list[bool], tmp_path: Path) -> None:
    lines = [*LINES[:300], AWKWARD[name], *LINES[300:]] if name != "carriage returns" else LINES
    (tmp_path / "a.csv").write_bytes(("\r\n" if name == "carriage returns" else "\n").join(lines).encode())
    same(Table(raw=tmp_path / "a.csv", label="click", bad_rows="skip"), tmp_path)
    assert used == [False, False]


def test_bad_rows_are_told_by_duckdb(used: list[bool], tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("\n".join([*LINES[:300], "1,7", *LINES[300:]]), encoding="utf-8")
    with pytest.raises(DataError, match="line 301"):
        prepare(Table(raw=tmp_path / "a.csv", label="click"), tmp_path / "out")
    assert used == [False]
    same(Table(raw=tmp_path / "a.csv", label="click", bad_rows="skip"), tmp_path)


@pytest.mark.parametrize("block", [7, 8, 9, 30])
def test_text_that_is_not_simple_is_found_at_every_end_of_a_block(
    block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(simple_text, "_BLOCK", block)
    path = tmp_path / "a.csv"
    files = Files((path,), ("a", "b"), (), "a", {}, header=False)
    texts = {
        "good": b"1,2\n3,\xc3\xa9\n5,6\n7,8",
        "utf": b"1,2\n3,4\n5,\xc3",
        "empty": b"1,2\n3,4\n\n5,6",
        "first": b"\n1,2\n3,4",
        "last": b"1,2\n3,4\n\n",
    }
    for name, text in texts.items():
        path.write_bytes(text)
        if name == "good":
            found = pa.Table.from_batches(read_simple(files, [1, 0]))
            assert found.to_pydict() == {"1": ["2", "é", "6", "8"], "0": ["1", "3", "5", "7"]}
        else:
            with pytest.raises(NotSimpleError):
                list(read_simple(files, [0]))


def test_splits_that_need_a_column_are_left_to_duckdb(used: list[bool], tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("\n".join(LINES), encoding="utf-8")
    same(Table(raw=tmp_path / "a.csv", label="click"), tmp_path, RandomSplit(key=("a",)))
    assert used == []


def test_simple_text_needs_no_expressions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ibis", "fieldwise.data.engines.expressions"):  # importing ibis takes half a second
        monkeypatch.setitem(sys.modules, name, None)
    (tmp_path / "a.csv").write_text("\n".join(LINES), encoding="utf-8")
    assert prepare(Table(raw=tmp_path / "a.csv", label="click"), tmp_path / "out").info["rows"]["train"] > 0
