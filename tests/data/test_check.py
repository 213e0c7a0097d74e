"""`check`: what every column is, why, and what is suspicious, in Python and on the command line."""

import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq
import pytest

import fieldwise as fw
from fieldwise.core.errors import DataError
from fieldwise.data.kinds.check import Check
from fieldwise.pipeline.check import check_tables, settings_text
from fieldwise.pipeline.settings import RunSettings
from fieldwise.pipeline.stages import prepare
from fieldwise.reports.run.page_data import run_data
from fieldwise.reports.run.view import open_run
from tests.command_line import cli

ROWS = 3_000
DRAW = np.random.default_rng(3)
CLICKS = DRAW.integers(0, 2, ROWS)
TABLE = pa.table(
    {
        "row": np.arange(ROWS),
        "user <b>": DRAW.integers(0, 60, ROWS),
        "leak": CLICKS + 0.25 * DRAW.random(ROWS),
        "rare": [f"r{i // 2}" for i in DRAW.permutation(ROWS)],
        "one": ["x"] * ROWS,
        "thousands": [f"{1 + i % 900} {i % 1000:03d}" for i in range(ROWS)],
        "at": [f"2024-04-{1 + i % 28:02d} {i % 24:02d}:00:00" for i in range(ROWS)],
        "genres": [("a|b", "a", "b|c", "a|c", "a|b|c", "c", "b")[i % 7] for i in range(ROWS)],
        "weight": DRAW.random(ROWS),
        "click": CLICKS,
    }
)
KINDS = {
    "row": "unique", "user <b>": "category", "leak": "number", "rare": "category", "one": "constant",
    "thousands": "unique", "at": "time", "genres": "list", "weight": "number",
}  # fmt: skip


@pytest.fixture(scope="module")
def found() -> Check:
    return fw.check(TABLE, label="click")


def test_every_column_has_a_kind_and_suspects_are_named(found: Check) -> None:
    assert found.kinds == KINDS
    assert found.clicks == {name: found.clicks[name] for name in ("train", "valid", "test")}
    assert (sum(found.rows.values()), sum(found.clicks.values())) == (ROWS, int(CLICKS.sum()))
    suspects = {name: [text for text in found.suspects if text.startswith(f"{name}: ")] for name in KINDS}
    assert [name for name, texts in suspects.items() if texts] == [
        "row", "leak", "one", "thousands", "weight",
    ]  # fmt: skip
    assert suspects["leak"] == ["leak: alone, it predicts the label with AUC 1.0000: does it contain the label?"]
    assert suspects["one"] == ["one: constant: left out"]
    assert "thousands: text that is numbers with spaces" in suspects["thousands"]
    columns = {column.name: column for column in found.columns}
    assert columns["at"].fields == ("at_hour", "at_weekday")
    assert columns["rare"].unknown is not None
    assert columns["user <b>"].cardinality == 60
    assert len(columns["user <b>"].examples) == 3


def test_it_shows_itself_and_names_are_text(found: Check) -> None:
    assert "row: nearly unique, which says nothing about new rows: left out" in repr(found)
    page = found._repr_html_()
    assert "user &lt;b&gt;" in page
    assert "<b>" not in page
    assert Check.model_validate(found.to_json()) == found


def test_files_and_sources_give_the_same_check(found: Check, tmp_path: Path) -> None:
    pq.write_table(TABLE, tmp_path / "rows.parquet")
    same = fw.check(tmp_path / "rows.parquet", label="click")
    assert same.columns == found.columns
    csv.write_csv(TABLE, tmp_path / "rows.csv")
    assert fw.check(str(tmp_path / "rows.csv"), "click").kinds == found.kinds
    source = fw.data.Table(raw=tmp_path / "rows.csv", label="click", ignore=("row",))
    assert "row" not in fw.check(source).kinds
    with pytest.raises(DataError, match="No label is named"):
        fw.check(TABLE)


def test_a_sample_counts_all_rows_of_suspects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fieldwise.data.kinds.sampling.SAMPLE", 1_500)
    monkeypatch.setattr("fieldwise.data.kinds.sampling._LEAST", 1_500)
    csv.write_csv(TABLE, tmp_path / "rows.csv")
    sampled = fw.check(tmp_path / "rows.csv", label="click")
    assert sampled.every == 2
    assert sum(sampled.rows.values()) == ROWS / 2
    columns = {column.name: column for column in sampled.columns}
    assert (columns["rare"].kind, columns["rare"].at_least) == ("category", False)
    assert 1_400 < columns["rare"].cardinality <= 1_500
    assert columns["user <b>"].at_least
    assert "1,500 rows (1 of every 2)" in repr(sampled)


def test_one_split_of_few_rows_is_no_error() -> None:
    assert fw.check(TABLE.slice(0, 8), label="click").kinds["one"] == "constant"


def test_the_written_settings_run_and_give_the_same_fields(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    csv.write_csv(TABLE, tmp_path / "rows.csv")
    done = cli("check", "rows.csv", "--label", "click")
    assert done.returncode == 0, done.stderr
    assert "Settings: settings.toml" in done.stdout
    assert "does it contain the label?" in done.stdout
    text = Path("settings.toml").read_text(encoding="utf-8")
    assert '# name = "time"\n# column = "at"\n' in text
    settings = RunSettings.parse(tomllib.loads(text))
    data = prepare(settings, tmp_path / "data")
    assert data.schema.names == (
        "user <b>", "leak", "rare", "genres", "weight", "at_hour", "at_weekday",
    )  # fmt: skip
    plain = fw.data.Table(raw=Path("rows.csv"), label="click", ignore=("one",))
    inferred = fw.prepare(plain, tmp_path / "plain").schema
    assert dict(zip(inferred.names, inferred.cardinalities, strict=True)) == dict(
        zip(data.schema.names, data.schema.cardinalities, strict=True)
    )
    again = cli("check", "rows.csv", "--label", "click")
    assert again.returncode == 0
    assert "settings.toml exists and was not replaced" in again.stdout
    assert Path("settings.toml").read_text(encoding="utf-8") == text


def test_settings_are_never_replaced_silently(tmp_path: Path) -> None:
    csv.write_csv(TABLE.slice(0, 200), tmp_path / "rows.csv")
    (tmp_path / "mine.toml").write_text("# mine\n")
    arguments: list[str | Path] = ["check", tmp_path / "rows.csv", "--label", "click", "--out", tmp_path / "mine.toml"]
    refused = cli(*arguments)
    assert refused.returncode == 2
    assert "Choose another --out, or add --overwrite" in refused.stderr
    assert (tmp_path / "mine.toml").read_text() == "# mine\n"
    assert cli(*arguments, "--overwrite").returncode == 0
    assert "[data.fields]" in (tmp_path / "mine.toml").read_text()


def test_settings_with_a_split_are_checked_and_kept(tmp_path: Path) -> None:
    csv.write_csv(TABLE, tmp_path / "rows.csv")
    values = {
        "data": {"raw": str(tmp_path / "rows.csv"), "label": "click", "ignore": ["row", "one"], "min_count": 2},
        "split": {"name": "time", "column": "at"},
    }
    found, text = check_tables(values, None, lambda *_: None)
    assert found.rows["train"] > found.rows["valid"] > 0
    written = tomllib.loads(text)
    assert written["split"] == {"name": "time", "column": "at"}
    assert written["data"]["ignore"][:2] == ["row", "one"]
    assert written["data"]["min_count"] == 2


def test_bad_calls_are_one_line(tmp_path: Path) -> None:
    csv.write_csv(TABLE.slice(0, 50), tmp_path / "rows.csv")
    calls: list[tuple[list[str | Path], str]] = [
        (["check", tmp_path / "rows.csv"], "No label is named. Allowed: the column with the clicks. Add --label NAME."),
        (["check", tmp_path / "rows.csv", "--label", "clik"], "Did you mean 'click'?"),
        (["check", tmp_path / "no.csv", "--label", "click"], "does not exist"),
        (["check", tmp_path / "rows.csv", "--label", "user <b>"], "Allowed: 0 and 1"),
    ]
    for arguments, says in calls:
        done = cli(*arguments)
        assert done.returncode == 2
        assert says in done.stderr
        assert "Traceback" not in done.stderr


def test_arguments_of_other_types_are_one_line(tmp_path: Path) -> None:
    calls: list[tuple[Callable[[], object], str]] = [
        (lambda: fw.check(TABLE, "click", ignor=["a"]), r"[data] unknown 'ignor'. Did you mean 'ignore'?"),
        (lambda: fw.check(TABLE, "click", split=cast(Any, "random")), "split is 'random'. Allowed: an object such as"),
        (lambda: fw.check(TABLE, "click", engine=cast(Any, "duckdb")), "engine is 'duckdb'. Allowed: an object such"),
        (lambda: fw.check(["a.csv", "b.csv"], "click"), "'a.csv' does not exist"),
        (lambda: fw.prepare(cast(Any, TABLE), tmp_path), "source is a Table. Allowed: an object such as fw.data.Frame"),
        (lambda: fw.Task.of(cast(Any, TABLE)), "data is a Table. Allowed: an object such as fw.prepare("),
        (lambda: fw.evaluate(cast(Any, "m"), cast(Any, None)), "model is 'm'. Allowed: an object such as fw.pretrain("),
        (lambda: fw.export(cast(Any, TABLE), tmp_path), "model is a Table. Allowed: an object such as fw.retrain("),
    ]
    for call, says in calls:
        with pytest.raises(fw.FieldwiseError, match=re.escape(says)):
            call()


def test_digits_stored_as_text_that_are_times_are_suspects() -> None:
    seconds = pa.array([str(1_700_000_000 + 3_600 * (i % 400)) for i in range(ROWS)])
    found = fw.check(TABLE.select(["click"]).append_column("at", seconds), label="click")
    assert found.kinds == {"at": "category"}
    assert found.suspects == ("at: looks like a time: for its hour and weekday, set kind and time_format",)


def test_a_repeated_header_and_bad_rows_are_named(tmp_path: Path) -> None:
    line = "u,click\n"
    text = line + "".join(f"{i % 7},{i % 2}\n" for i in range(90))
    (tmp_path / "joined.csv").write_text(text + line + "1,0\n")
    with pytest.raises(DataError, match="The header is repeated in 1 rows"):
        fw.check(tmp_path / "joined.csv", "click")
    (tmp_path / "bad.csv").write_text(text + "1,2,3\n")
    given = {"data": {"raw": str(tmp_path / "bad.csv"), "label": "click"}}
    found, written = check_tables(given, None, lambda *_: None)
    assert found.view().lines == ("rows that cannot be read: 1",)
    assert '# bad_rows = "skip"  # rows that cannot be read: 1;' in written


def test_a_run_shows_and_stores_the_check(tmp_path: Path) -> None:
    table = TABLE.select(["user <b>", "at", "genres", "click"])
    csv.write_csv(table, tmp_path / "rows.csv")
    data = fw.prepare(fw.data.Table(raw=tmp_path / "rows.csv", label="click"), tmp_path / "data")
    assert data.kinds is not None
    assert data.kinds.kinds == {"user <b>": "category", "at": "time", "genres": "list"}
    assert data.kinds.rows == data.info["rows"]
    done = cli(
        "pretrain", "--dataset", tmp_path / "data", "--out", tmp_path / "run", "--set", "pretrain.epochs=1",
        "--set", "model.width=2", "--device", "cpu",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "label 'click'" in done.stdout
    assert "genres   list" in done.stdout
    assert Check.model_validate(fw.Dataset.open(tmp_path / "data").kinds) == data.kinds
    view = open_run(tmp_path / "run")
    assert view.kinds == data.kinds
    assert [row[:2] for row in run_data(view)["columns"]["rows"]] == list(data.kinds.kinds.items())
    (tmp_path / "run" / "kinds.json").write_text("{}")
    damaged = open_run(tmp_path / "run")
    assert damaged.missing[-1].startswith("kinds.json is damaged (")
    assert run_data(damaged)["columns"] is None
    (tmp_path / "data" / "kinds.json").write_text("{}")
    with pytest.raises(DataError, match=r"kinds.json' is damaged"):
        _ = fw.Dataset.open(tmp_path / "data").kinds


def test_text_of_settings_survives_any_name() -> None:
    table = pa.table({'a"]\n\\': ["x", "y"] * 20, "click": [0, 1] * 20})
    source = fw.data.Frame(frame=table, label="click")
    text = settings_text(fw.check(source), source, fw.RandomSplit())
    assert list(tomllib.loads(text)["data"]["fields"]) == ['a"]\n\\']


def test_it_names_the_columns_that_become_several_fields(tmp_path: Path) -> None:
    users, ninety_nine = ([f"{name}{i % count}" for i in range(ROWS)] for name, count in (("u", 150), ("f", 99)))
    nulls = [None if i % 7 == 0 else text for i, text in enumerate(ninety_nine)]
    table = pa.table({"user": users, "few": ninety_nine, "null": nulls, "click": CLICKS})
    found = {column.name: column.reason for column in fw.check(table, label="click").columns}
    assert found["user"].endswith("; fields: user:frequent, user:middle, user:rare")
    assert "fields:" not in found["few"]
    data = fw.prepare(fw.data.Frame(frame=table, label="click"), tmp_path / "data")
    split = [name for name in found if f"; fields: {name}:frequent, {name}:middle, {name}:rare" in found[name]]
    assert {field.partition(":")[0] for field in data.schema.names if ":" in field} == set(split) == {"user", "null"}
    for settings, says in (
        ({"tiers": 0}, False),
        ({"fields": {"user": {"tiers": 0}}}, False),
        ({"tiers": 0, "fields": {"user": {"tiers": 0.1}}}, True),
    ):
        reason = {column.name: column.reason for column in fw.check(table, label="click", **settings).columns}["user"]
        assert ("fields: user:frequent" in reason) == says
    (user, *_) = fw.check(table, label="click", min_count=5).columns
    assert user.reason.endswith("; if 100 values have min_count rows, fields: user:frequent, user:middle, user:rare")


def test_a_list_of_files_is_named_by_its_first(tmp_path: Path) -> None:
    table = pa.table({"a": ["x", "y"] * 20, "click": [0, 1] * 20})
    for name in ("one", "two"):
        pq.write_table(table, tmp_path / f"{name}.parquet")
    found = fw.check([tmp_path / "one.parquet", tmp_path / "two.parquet"], label="click")
    assert "one.parquet and 1 more" in str(found)
