"""Times in text mean the same in splits, fields, descriptions and new rows; otherwise they are refused."""

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import ibis
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fieldwise.core.errors import DataError, SettingsError
from fieldwise.data.engines.duckdb import DuckDB
from fieldwise.data.engines.engine import Engine
from fieldwise.data.engines.spark import Spark
from fieldwise.data.engines.times import parsed
from fieldwise.data.prepare import prepare
from fieldwise.data.rules import Kind, Rule
from fieldwise.data.split import ColumnSplit, TimeSplit
from fieldwise.data.store import Dataset
from fieldwise.data.table import Table
from fieldwise.data.time_forms import FORMS, time_form
from fieldwise.data.time_parts import templates
from fieldwise.data.times import parse_times
from fieldwise.pipeline.settings import RunSettings
from fieldwise.reports.dataset import field_rows, notes
from tests.data.small_files import assert_same_dataset, quiet, spark
from tests.data.times_in_text import NOT_TIMES, TEXTS

ROWS = 400
ORDER = np.random.default_rng(0).permutation(ROWS)
TIMES = [datetime(2024, 4, 20) + timedelta(minutes=17 * int(i)) for i in ORDER]  # until 24 April, 17:03
WRITTEN: dict[str, Any] = {
    "2024-04-24 9:59": lambda t: f"{t:%Y-%m-%d} {t.hour}:{t:%M}",
    "24/04/2024 9:59": lambda t: f"{t:%d/%m/%Y} {t.hour}:{t:%M}",
    "4/24/2024 9:59 AM": lambda t: f"{t.month}/{t.day}/{t.year} {t.hour % 12 or 12}:{t:%M %p}",
    "24-Apr-2024 09:59": lambda t: f"{t:%d-%b-%Y %H:%M}",
    "20240424 0959": lambda t: f"{t:%Y%m%d %H%M}",
    "1713952740": lambda t: str(int((t - datetime(1970, 1, 1)).total_seconds())),
}


def written(folder: Path, texts: list[str], name: str = "raw.csv") -> Path:
    """Writes rows whose fields `row` says when they happened."""
    lines = [f"{row},{text},{i // 4 % 2},{('train', 'valid', 'train', 'test')[i % 4]}" for i, (row, text) in
             enumerate(zip(ORDER, texts, strict=True))]  # fmt: skip
    (folder / name).write_text("\n".join(["row,at,click,part", *lines, ""]))
    return folder / name


def rows_of(data: Dataset, split: str) -> list[int]:
    """The rows of a split, by their time."""
    values = data.vocabulary("row").values.to_pylist()
    return sorted(int(values[i - 1]) for i in getattr(data, split).ids[:, 0] if i)


def by_time(raw: Path, out: Path, engine: Engine | None = None, **split: Any) -> Dataset:
    source = Table(raw=raw, label="click", only=("row", "part"), fields={"row": Rule(kind="category", tiers=0)})
    return prepare(source, out, TimeSplit(column="at", **split), engine=engine)


@pytest.mark.parametrize("form", WRITTEN)
def test_a_time_split_orders_texts_by_time_not_by_letter(form: str, tmp_path: Path) -> None:
    data = by_time(written(tmp_path, [WRITTEN[form](time) for time in TIMES]), tmp_path / "out")
    assert data.info["rows"] == {"train": 320, "valid": 40, "test": 40}
    assert rows_of(data, "train") == list(range(320))
    expected = np.flatnonzero(np.isin(ORDER, range(360, 400))) // 4 % 2
    assert data.test.labels.tolist() == expected.tolist()


def test_a_time_split_takes_a_format(tmp_path: Path) -> None:
    texts = [f"at {time:%H:%M %d.%m.%y}" for time in TIMES]
    with pytest.raises(DataError, match=r"Column 'at': 400 of 400 texts are no times, such as 'at .*Set time_format"):
        by_time(written(tmp_path, texts), tmp_path / "out")
    data = by_time(written(tmp_path, texts), tmp_path / "out", time_format="at %H:%M %d.%m.%y")
    assert rows_of(data, "train") == list(range(320))
    with pytest.raises(DataError, match=r"400 of 400 texts are not times of the form %d/%m/%Y, such as 'at "):
        by_time(written(tmp_path, texts), tmp_path / "other", time_format="%d/%m/%Y")


def test_days_that_may_be_months_are_refused_in_splits_and_fields_until_they_are_told(tmp_path: Path) -> None:
    texts = [f"{1 + int(i) // 40:02d}/04/2024 {int(i) % 24}:00" for i in ORDER]
    raw = written(tmp_path, texts)
    says = "Times of column 'at' are ambiguous: in '.*Set time_format to 'day-first' or 'month-first'"
    with pytest.raises(DataError, match=says):
        by_time(raw, tmp_path / "out")
    hours = Table(raw=raw, label="click", ignore=("at",), fields={"hour": Rule(column="at", kind="hour")})
    with pytest.raises(DataError, match=says):
        prepare(hours, tmp_path / "out", ColumnSplit(column="part"))
    assert not (tmp_path / "out").exists()
    day_first = by_time(raw, tmp_path / "day", time_format="day-first")
    assert max(rows_of(day_first, "train")) < 330


def test_a_few_rows_without_a_time_are_training_rows_and_shown(tmp_path: Path) -> None:
    texts = [WRITTEN["24/04/2024 9:59"](time) for time in TIMES]
    texts[7], texts[9], texts[11] = "unknown", "", "31/02/2024 1:00"
    data = by_time(written(tmp_path, texts), tmp_path / "out")
    assert list(notes(data.info)) == ["Split by time: 3 of 400 rows have no time and are training rows."]
    assert {int(ORDER[7]), int(ORDER[9]), int(ORDER[11])} <= set(rows_of(data, "train"))


@pytest.mark.parametrize("form", WRITTEN)
@pytest.mark.parametrize("kind", ["hour", "weekday", "weekend"])
def test_parts_of_a_time_are_found_in_every_form(form: str, kind: Kind, tmp_path: Path) -> None:
    data = fielded(written(tmp_path, [WRITTEN[form](time) for time in TIMES]), tmp_path / "out", kind)
    expected = {"hour": lambda t: t.hour, "weekday": lambda t: t.weekday(), "weekend": lambda t: t.weekday() // 5}
    values = data.vocabulary("at").values.to_pylist()
    found = [values[i - 1] for i in data.train.ids[:, 0]]
    assert found == [expected[kind](time) for i, time in enumerate(TIMES) if i % 4 in (0, 2)]
    assert data.info["splits"]["train"]["nulls"] == [0]


def fielded(raw: Path, out: Path, kind: Kind = "hour", time_format: str | None = None) -> Dataset:
    rule = Rule(kind=kind, time_format=time_format)
    source = Table(raw=raw, label="click", only=("at", "part"), fields={"at": rule})
    return prepare(source, out, ColumnSplit(column="part"))


def test_a_wrong_format_is_refused_and_a_few_texts_that_are_no_times_are_described(tmp_path: Path) -> None:
    texts = [WRITTEN["24/04/2024 9:59"](time) for time in TIMES]
    with pytest.raises(DataError, match=r"Column 'at': 200 of 200 texts are not times of the form %m-%d %H"):
        fielded(written(tmp_path, texts), tmp_path / "out", time_format="%m-%d %H")
    texts[4], texts[5] = "soon", ""
    data = fielded(written(tmp_path, texts), tmp_path / "out")
    assert list(notes(data.info)) == ["Field 'at': 1 of 400 texts (0.25%) are no times and count as null."]
    rules = [{"rule": f.rule.values(), "length": 1, "several": False} for f in data.encoder.fields]
    assert next(iter(field_rows(data.info, rules)))[-1] == "0.5/1.0/0.0"


def test_texts_of_another_split_that_are_no_times_are_refused(tmp_path: Path) -> None:
    texts = [WRITTEN["24/04/2024 9:59"](time) for time in TIMES]
    for row in range(1, ROWS, 4):
        texts[row] = "later"
    with pytest.raises(DataError, match=r"Column 'at': 100 of 100 texts are not times of the form day-first.* 'later'"):
        fielded(written(tmp_path, texts), tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("kind", ["category", "hour", "quantile", "width"])
@pytest.mark.parametrize("days", [False, True])
def test_rows_in_text_get_the_ids_of_times_in_training(kind: Kind, days: bool, tmp_path: Path) -> None:
    column = pa.array(TIMES, pa.timestamp("ms")).cast(pa.date32()) if days else pa.array(TIMES, pa.timestamp("ms"))
    parts = [("train", "valid", "train", "test")[i % 4] for i in range(ROWS)]
    pq.write_table(pa.table({"at": column, "part": parts, "click": np.arange(ROWS) // 4 % 2}), tmp_path / "raw.parquet")
    rule = Rule(kind=kind, bins=16, width=1.0 if days else 3.6e9)
    source = Table(raw=tmp_path / "raw.parquet", label="click", only=("at", "part"), fields={"at": rule})
    if days and kind == "hour":
        return
    data = prepare(source, tmp_path / "out", ColumnSplit(column="part"))
    again = Dataset.open(tmp_path / "out").encoder
    train = [time for i, time in enumerate(TIMES) if i % 4 in (0, 2)]
    for write in (str, WRITTEN["2024-04-24 9:59"], lambda t: f"{t:%Y/%m/%dT%H:%M:00Z}"):
        texts = [write(time.replace(hour=0, minute=0) if days else time) for time in train]
        assert np.array_equal(again.encode({"at": texts}), data.train.ids), texts[0]
    assert np.array_equal(again.encode({"at": pa.array(train, pa.timestamp("ns"))}) if not days else data.train.ids,
                          data.train.ids)  # fmt: skip
    with pytest.raises(DataError, match=r"Column 'at': 200 of 200 texts are no times, such as '.*/04/2024 "):
        again.encode({"at": [WRITTEN["24/04/2024 9:59"](time) for time in train]})


def test_times_get_the_ids_of_texts_in_training_or_are_refused(tmp_path: Path) -> None:
    data = fielded(written(tmp_path, [WRITTEN["24/04/2024 9:59"](t) for t in TIMES]), tmp_path / "out", "category")
    train = pa.array([time for i, time in enumerate(TIMES) if i % 4 in (0, 2)], pa.timestamp("us"))
    assert np.array_equal(data.encoder.encode({"at": train}), data.train.ids)
    texts = [f"{1 + int(i) % 12:02d}/04/2024" for i in ORDER]
    unclear = fielded(written(tmp_path, texts, "unclear.csv"), tmp_path / "unclear", "category")
    with pytest.raises(DataError, match=r"'at' holds timestamp\[us\]; the model was trained with text such as '"):
        unclear.encoder.encode({"at": train})


def test_a_format_that_is_not_understood_is_one_line() -> None:
    for table in ({"data": {"name": "table", "raw": "a", "label": "b", "fields": {"at": {"time_format": "%Q"}}}},
                  {"split": {"name": "time", "column": "at", "time_format": "%Q"}}):  # fmt: skip
        with pytest.raises(SettingsError, match=r"%Q is not supported. Allowed: %Y"):
            RunSettings.parse(table)


@pytest.mark.parametrize("form", FORMS)
def test_duckdb_parses_every_text_as_arrow_does(form: str) -> None:
    texts = [*TEXTS, *NOT_TIMES, None]
    column = ibis.memtable({"text": texts}, schema={"text": "string"}).text
    expected = parse_times(pa.array(texts), form).cast(pa.int64()).to_pylist()
    assert parsed(column, time_form(form)).to_pyarrow().to_pylist() == expected
    for text, value in zip(texts, expected, strict=True):  # alone: cut by its template
        alone = pa.array([text, None], pa.string())
        assert parse_times(alone, form).cast(pa.int64()).to_pylist() == [value, None]
        if text in list(TEXTS)[::4] and time_form(form).spans(templates(alone)[0].as_py()):
            column = ibis.memtable({"text": [text, None]}, schema={"text": "string"}).text
            shapes = templates(alone).dictionary.drop_null().to_pylist()
            assert parsed(column, time_form(form), shapes).to_pyarrow().to_pylist() == [value, None], text


@spark
@quiet
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("form", ["2024-04-24 9:59", "24/04/2024 9:59", "4/24/2024 9:59 AM"])
def test_spark_splits_texts_as_duckdb_does(form: str, tmp_path: Path) -> None:
    texts = [WRITTEN[form](time) for time in TIMES]
    texts[7] = "unknown"
    source = Table(
        raw=written(tmp_path, texts), label="click", only=("row",), fields={"row": Rule(kind="category", tiers=0)}
    )
    engines: list[Engine] = [DuckDB(), Spark(master="local[2]", memory=1024)]
    assert_same_dataset(source, tmp_path, engines, TimeSplit(column="at"))
