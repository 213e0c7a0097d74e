"""Files as they are published: each form gives the dataset of a plain CSV, and new rows of that form its ids."""

import bz2
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fieldwise.core.errors import DataError
from fieldwise.data import packed
from fieldwise.data.cells import Cells
from fieldwise.data.engines.arrow import Arrow
from fieldwise.data.engines.duckdb import DuckDB
from fieldwise.data.engines.spark import Spark
from fieldwise.data.frame import Frame
from fieldwise.data.names import column_names
from fieldwise.data.prepare import prepare
from fieldwise.data.source import Source, SourceRows
from fieldwise.data.split import ColumnSplit, FileSplit
from fieldwise.data.store import Dataset
from fieldwise.data.table import Table
from fieldwise.data.threshold import Threshold
from fieldwise.exports.raw_rows import RawRows
from fieldwise.reports.dataset import notes
from tests.data.published_files import (
    FORMS,
    NAMES,
    ROWS,
    RULES,
    Rows,
    cells,
    plain,
    table,
    text,
    with_case,
    written,
    zipped,
)
from tests.data.small_files import assert_same_dataset, quiet, spark


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """The dataset of the plain file."""
    folder = tmp_path_factory.mktemp("plain")
    return prepare(table(plain(folder)), folder / "out")


@pytest.mark.parametrize("form", FORMS)
def test_a_file_as_published_gives_the_dataset_of_a_plain_one(form: str, expected: Dataset, tmp_path: Path) -> None:
    write, settings, reading = FORMS[form]
    raw = write(tmp_path)
    data = prepare(table(raw, **settings), tmp_path / "out")
    assert data.fingerprint == expected.fingerprint
    rows = list(RawRows(raw, **reading).batches(data.encoder.columns))
    ids = np.concatenate([data.encoder.encode(batch) for batch in rows])
    (tmp_path / "again").mkdir()
    reference = pa.Table.from_batches(RawRows(plain(tmp_path / "again")).batches(NAMES[:3]))
    assert np.array_equal(ids, expected.encoder.encode(reference))


@spark
@quiet
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_spark_reads_published_files_too(expected: Dataset, tmp_path: Path) -> None:
    for number, (write, settings, _) in enumerate(FORMS.values()):
        (tmp_path / str(number)).mkdir()
        source = table(write(tmp_path / str(number)), **settings)
        data = prepare(source, tmp_path / f"out-{number}", engine=Spark(master="local[2]", memory=1024))
        assert data.fingerprint == expected.fingerprint


def frame(rows: Rows) -> pd.DataFrame:
    return pd.DataFrame([["NA" if cell is None else cell for cell in row] for row in rows], columns=list(NAMES))


class Generated(Source):
    """Rows that every engine counts: text with markers of null and a rating."""

    def open(self) -> SourceRows:
        """Returns the rows of the plain file."""
        rated = frame(cells()).rename(columns={"click": "rating"})
        rated["rating"] = np.where(rated["rating"] == "1", "4,5", "3,25")
        batch = pa.RecordBatch.from_pandas(rated.assign(row=range(ROWS)))
        read = Cells(nulls=("NA",), decimal=",")
        threshold = Threshold(sign=">=", number=4)
        return SourceRows(
            NAMES[:3], "rating", ("row",), lambda: iter([batch]), ROWS, RULES, cells=read, threshold=threshold
        )


def test_this_process_and_duckdb_read_cells_and_thresholds_alike(tmp_path: Path) -> None:
    assert_same_dataset(Generated(), tmp_path, [Arrow(), DuckDB()])
    data = Dataset.open(tmp_path / "out-0")
    assert data.vocabulary("city").values.null_count == 1
    assert 0 < data.train.labels.mean() < 1


def test_rows_in_memory_have_the_same_markers_of_null(expected: Dataset, tmp_path: Path) -> None:
    data = prepare(Frame(frame=frame(cells()), label="click", fields=RULES), tmp_path / "out")
    assert data.fingerprint == expected.fingerprint
    nulls = pa.table({name: [row[i] for row in cells()] for i, name in enumerate(NAMES[:3])})
    for encoder in (data.encoder, Dataset.open(tmp_path / "out").encoder):
        assert np.array_equal(encoder.encode(frame(cells())), encoder.encode(nulls))


def test_a_file_without_a_header_is_recognized(tmp_path: Path) -> None:
    raw = written(tmp_path / "bare.csv", text(cells()[1:], header=()))
    with pytest.raises(DataError, match=r"unknown 'click'.*seems to have no header: name its 4 columns with header=\("):
        prepare(table(raw), tmp_path / "out")
    with pytest.raises(DataError, match=r"has 4 columns in its first line, the header names 2: a, b"):
        prepare(table(raw, header=("a", "b")), tmp_path / "out")


def test_names_that_differ_by_case_or_are_repeated_are_separate_fields(tmp_path: Path) -> None:
    found = prepare(Table(raw=with_case(tmp_path), label="click", tiers=0), tmp_path / "out")
    assert found.schema.names == ("price", "city", "visits", "Price", "CITY", "price_2")
    arrays = [pa.array(range(ROWS)) for _ in range(3)]
    pq.write_table(pa.Table.from_arrays([*arrays, pa.array([i % 2 for i in range(ROWS)])], ["a", "A", "a", "click"]),
                   tmp_path / "case.parquet")  # fmt: skip
    data = prepare(Table(raw=tmp_path / "case.parquet", label="click", tiers=0), tmp_path / "typed")
    assert data.schema.names == ("a", "A", "a_2")
    rows = RawRows(tmp_path / "case.parquet").batches(data.encoder.columns)
    assert data.encoder.encode(next(rows)).shape == (ROWS, 3)
    assert column_names(["", "a", "a", "a_2", " "]) == ("column_1", "a", "a_3", "a_2", "column_5")


def test_a_first_column_without_a_name_that_is_no_index_is_a_field(tmp_path: Path) -> None:
    rows = [(row[1], *row) for row in cells()]
    data = prepare(
        Table(raw=written(tmp_path / "a.csv", text(rows, header=("", *NAMES))), label="click"), tmp_path / "out"
    )
    assert data.schema.names == ("column_1", "price", "city", "visits")


def test_infinite_numbers_are_in_the_outer_bins(tmp_path: Path) -> None:
    infinite = {3: "inf", 5: "-inf", 7: "Infinity"}
    rows = [(infinite.get(i, row[0]), *row[1:]) for i, row in enumerate(cells())]
    data = prepare(table(written(tmp_path / "inf.csv", text(rows))), tmp_path / "out")
    price = data.encoder.fields[0]
    found = price.vocabulary.values.take(pa.array(price.ids(pa.array(["inf", "-inf", "Infinity", "1e300"]))[:, 0] - 1))
    assert found.to_pylist() == [7, 0, 7, 7]
    assert np.isfinite(price.rule.edges).all()


def test_archives_that_are_not_one_file_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with zipfile.ZipFile(tmp_path / "two.zip", "w") as archive:
        archive.writestr("a.csv", text(cells()))
        archive.writestr("b.csv", text(cells()))
    with pytest.raises(DataError, match=r"two\.zip' holds 2 files \(a\.csv, b\.csv\)\. Allowed: one"):
        prepare(table(tmp_path / "two.zip"), tmp_path / "out")
    written(tmp_path / "broken.zip", zipped(tmp_path).read_bytes()[:300])
    with pytest.raises(DataError, match=r"broken\.zip' is no zip archive"):
        prepare(table(tmp_path / "broken.zip"), tmp_path / "out")
    written(tmp_path / "cut.csv.bz2", bz2.compress(text(cells()).encode())[:900])
    with pytest.raises(DataError, match=r"cut\.csv\.bz2' is damaged"):
        prepare(table(tmp_path / "cut.csv.bz2"), tmp_path / "out")
    monkeypatch.setattr(packed, "_FREE", 1 << 20)
    written(tmp_path / "bomb.csv.bz2", bz2.compress(b"price,city,visits,click\n" + b"1,a,2,0\n" * 1_000_000))
    with pytest.raises(DataError, match=r"unpacks to more than .* bytes, 1,000 times its size"):
        prepare(table(tmp_path / "bomb.csv.bz2"), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_another_encoding_is_asked_for(tmp_path: Path) -> None:
    raw = written(tmp_path / "latin.csv", text(cells()).encode("latin-1"))
    with pytest.raises(DataError, match=r"is not UTF-8 text .*Name its encoding, such as encoding='latin-1'"):
        prepare(table(raw), tmp_path / "out")
    with pytest.raises(DataError, match=r"Encoding 'klingon' is unknown: allowed: a text encoding"):
        RawRows(raw, encoding="klingon")
    with pytest.raises(ValueError, match="allowed: a text encoding that Python knows"):
        Table(raw=raw, label="click", encoding="rot13")


def test_json_lines_of_two_types_and_other_text_are_refused(tmp_path: Path) -> None:
    raw = written(tmp_path / "a.jsonl", '{"a": 1}\n{"a": "x"}\n')
    with pytest.raises(DataError, match=r"a\.jsonl' is not JSON Lines"):
        prepare(Table(raw=raw, label="click"), tmp_path / "out")


def test_a_label_that_is_no_number_has_no_threshold(tmp_path: Path) -> None:
    rows = [(*row[:3], "4" if i % 2 else "none") for i, row in enumerate(cells())]
    raw = written(tmp_path / "a.csv", text(rows, header=(*NAMES[:3], "rating")))
    with pytest.raises(DataError, match=r"Label 'rating' is empty in 120 rows"):
        prepare(table(raw, label="rating > 3"), tmp_path / "out")


def test_constant_and_empty_columns_are_left_out_and_named(tmp_path: Path) -> None:
    rows = [(row[0], "same", *row[1:], None, "?") for row in cells()]
    header = ("price", "shop", *NAMES[1:], "empty", "marked")
    raw = written(tmp_path / "a.csv", text(rows, header=header))
    data = prepare(Table(raw=raw, label="click", fields=RULES), tmp_path / "out")
    assert data.schema.names == ("price", "city", "visits")
    assert list(notes(data.info)) == [
        "Field 'shop' was left out: its training rows hold only the value 'same'.",
        "Field 'empty' was left out: its training rows hold no value.",
        "Field 'marked' was left out: its training rows hold no value.",
    ]
    ids = data.encoder.encode(pa.Table.from_batches(RawRows(raw).batches(data.encoder.columns)))
    assert ids.shape == (ROWS, 3)


def test_valid_is_taken_from_the_training_files_if_there_is_none(tmp_path: Path) -> None:
    raw, test = plain(tmp_path), written(tmp_path / "test.csv", text(cells()[:50]))
    data = prepare(table(raw), tmp_path / "out", FileSplit(test=test, valid_share=0.25, seed=3))
    found = data.info["rows"]
    assert found["test"] == 50
    assert found["train"] + found["valid"] == ROWS
    assert 40 < found["valid"] < 80
    again = prepare(table(raw), tmp_path / "again", FileSplit(test=test, valid_share=0.25, seed=4))
    assert again.fingerprint != data.fingerprint
    with pytest.raises(DataError, match=r"is in train and in test. Allowed: each file in one"):
        prepare(table(raw), tmp_path / "same", FileSplit(test=raw))


def test_valid_is_taken_from_the_training_rows_of_a_column(tmp_path: Path) -> None:
    rows = [(*row, "fit" if i < 200 else "holdout") for i, row in enumerate(cells())]
    raw = written(tmp_path / "a.csv", text(rows, header=(*NAMES, "part")))
    with pytest.raises(DataError, match=r"No rows in split valid .*valid_share=0.1"):
        prepare(table(raw), tmp_path / "out", ColumnSplit(column="part", train="fit", test="holdout"))
    split = ColumnSplit(column="part", train="fit", test="holdout", valid_share=0.2)
    found = prepare(table(raw), tmp_path / "out", split).info["rows"]
    assert (found["test"], found["train"] + found["valid"]) == (40, 200)
    assert 20 < found["valid"] < 60


@pytest.mark.parametrize("form", ["comma and space", "latin-1"])
def test_a_bad_row_of_a_rewritten_file_is_named_by_the_user_s_file(form: str, tmp_path: Path) -> None:
    write, settings, _ = FORMS[form]
    raw = write(tmp_path)
    lines = raw.read_bytes().split(b"\n")
    raw.write_bytes(b"\n".join([*lines[:41], b"1, 2", *lines[41:]]))
    with pytest.raises(DataError, match=rf"'{raw}', line 42: "):
        prepare(table(raw, **settings), tmp_path / "out")
    data = prepare(table(raw, **settings, bad_rows="skip"), tmp_path / "out")
    assert (data.info["skipped"], sum(data.info["rows"].values())) == (1, ROWS)
