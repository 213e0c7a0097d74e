"""The split `files`: one format, no file in two splits, and a change of any file is detected."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fieldwise.core.errors import DataError
from fieldwise.data.frame import Frame
from fieldwise.data.prepare import prepare
from fieldwise.data.split import FileSplit
from fieldwise.data.store import Dataset
from fieldwise.data.table import Table

NAMES = ("user", "item", "click")


def table(rows: int) -> pa.Table:
    """Rows with users and items whose values differ."""
    draw = np.random.default_rng(rows)
    users, items = ([f"{name}{i}" for i in draw.integers(0, 9, rows)] for name in "ui")
    return pa.table({"user": users, "item": items, "click": [str(i % 2) for i in range(rows)]})


def write(path: Path, rows: int = 300, names: tuple[str, ...] = NAMES) -> Path:
    """Writes the rows as CSV or Parquet, with columns in this order."""
    found = table(rows).select(list(names))
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        pq.write_table(found, path)
    else:
        path.write_text("\n".join(map(",".join, [names, *zip(*found.to_pydict().values(), strict=True)])) + "\n")
    return path


def split(folder: Path, train: str = "a.csv", valid: str = "b.csv", test: str = "c.csv") -> Dataset:
    rule = FileSplit(valid=folder / valid, test=folder / test)
    return prepare(Table(raw=folder / train, label="click"), folder / "out", rule)


@pytest.mark.parametrize("place", ["b.csv", "c/2.csv"])
def test_text_whose_columns_stand_in_another_order_is_refused_in_every_part(tmp_path: Path, place: str) -> None:
    for name in ("a.csv", "b.csv", "c/1.csv", "c/2.csv"):
        write(tmp_path / name, names=("item", "user", "click") if name == place else NAMES)
    with pytest.raises(DataError, match=f"{place}' has the columns item, user, click; .*a.csv' has user, item, click"):
        split(tmp_path, test="c")
    write(tmp_path / place)
    data = split(tmp_path, test="c")
    assert data.info["rows"] == {"train": 300, "valid": 300, "test": 600}


def test_parquet_is_read_by_name(tmp_path: Path) -> None:
    for name, names in (("a", NAMES), ("b", NAMES[::-1]), ("c", NAMES)):
        write(tmp_path / f"{name}.parquet", names=names)
    data = split(tmp_path, "a.parquet", "b.parquet", "c.parquet")
    assert np.array_equal(data.valid.ids, data.encoder.encode(table(300)))


def test_parts_of_another_kind_are_refused(tmp_path: Path) -> None:
    for name in ("a.csv", "b.csv", "c.parquet"):
        write(tmp_path / name)
    with pytest.raises(DataError, match=r"c.parquet' is Parquet, the training rows are text"):
        split(tmp_path, test="c.parquet")
    rule = FileSplit(valid=tmp_path / "c.parquet", test=tmp_path / "b.csv")
    with pytest.raises(DataError, match=r"b.csv' is text, the training rows are Parquet"):
        prepare(Frame(frame=table(300), label="click"), tmp_path / "out", rule)


@pytest.mark.parametrize("changed", ["a.csv", "b.csv", "c.csv"])
def test_a_change_in_any_part_is_noticed(tmp_path: Path, changed: str) -> None:
    for name in ("a.csv", "b.csv", "c.csv"):
        write(tmp_path / name)
    split(tmp_path)
    split(tmp_path)
    write(tmp_path / changed, 299)
    with pytest.raises(DataError, match=rf"was made with other settings: \S*\.{changed} \(\d+ -> \d+\)"):
        split(tmp_path)


@pytest.mark.parametrize("day", ["day=1", "day=2"])
def test_a_change_is_noticed_among_files_of_one_name(tmp_path: Path, day: str) -> None:
    for name in ("day=1", "day=2"):
        write(tmp_path / "raw" / name / "part-0.parquet")
    source = Table(raw=tmp_path / "raw" / "*" / "*.parquet", label="click")
    data = prepare(source, tmp_path / "out")
    assert set(data.info["made"]["source"]["raw"]) == {"day=1/part-0.parquet", "day=2/part-0.parquet"}
    write(tmp_path / "raw" / day / "part-0.parquet", 250)
    with pytest.raises(DataError, match=f"was made with other settings: source.raw.{day}/part-0.parquet"):
        prepare(source, tmp_path / "out")


def test_files_may_lie_elsewhere(tmp_path: Path) -> None:
    for name in ("a.csv", "b.csv", "c.csv"):
        write(tmp_path / "here" / name)
    data = split(tmp_path / "here")
    (tmp_path / "here").rename(tmp_path / "there")
    assert split(tmp_path / "there").fingerprint == data.fingerprint


@pytest.mark.parametrize(
    ("train", "valid", "test", "says"),
    [
        (".", "b.csv", "sub/c.csv", "b.csv' is in train and in valid"),
        ("a.csv", "b.csv", "sub/../b.csv", "b.csv' is in valid and in test"),
        ("a.csv", "b.csv", "link.csv", "link.csv' is in train and in test"),
    ],
)
def test_a_file_in_two_parts_is_refused(tmp_path: Path, train: str, valid: str, test: str, says: str) -> None:
    for name in ("a.csv", "b.csv", "sub/c.csv"):
        write(tmp_path / name)
    if test == "link.csv":
        (tmp_path / test).symlink_to(tmp_path / "a.csv")
    with pytest.raises(DataError, match=says) as caught:
        split(tmp_path, train, valid, test)
    assert len(str(caught.value).splitlines()) == 1
    assert not (tmp_path / "out").exists()
