"""Kinds by evidence: from the values of training rows, then the type, then the name; settings always win."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv
import pyarrow.parquet as pq
import pytest

from fieldwise.core.errors import DataError
from fieldwise.data.frame import Frame
from fieldwise.data.kinds.column import Column
from fieldwise.data.kinds.evidence import auc, predict
from fieldwise.data.kinds.infer import Found, infer
from fieldwise.data.prepare import prepare
from fieldwise.data.rules import Rule
from fieldwise.data.table import Table

ROWS = 4_000
DRAW = np.random.default_rng(7)
IDS = DRAW.integers(0, 150, ROWS)
"""Ids whose neighbors behave differently."""
AMOUNTS = DRAW.integers(0, 150, ROWS)
"""Amounts whose neighbors behave alike."""
CLICKS = (DRAW.random(ROWS) < 0.1 + 0.4 * DRAW.random(150).round()[IDS] + 0.4 * (AMOUNTS > 75)).astype(np.int64)
SECONDS = 1_700_000_000 + DRAW.integers(0, 30 * 86_400, ROWS)


def found(name: str, values: Any, typed: bool = False) -> Found:
    """What a column of a text file is, or of a file with types."""
    array = pa.array(values)
    array = array if typed else array.cast(pa.string())
    column = Column.of(name, pa.chunked_array([array]), CLICKS[: len(array)].astype(float), not typed)
    return infer(column, len(array), (column.known, column.distinct))


def texts(make: Callable[[int], str]) -> list[str]:
    return [make(int(value)) for value in IDS]


@pytest.mark.parametrize(
    ("name", "values", "kind"),
    [
        ("user", IDS, "category"),
        ("bid", AMOUNTS, "number"),  # ends in id
        ("a", AMOUNTS, "number"),
        ("a", AMOUNTS - 0.5, "number"),
        ("zip", 10_000 + IDS * 37, "category"),
        ("zip", texts(lambda i: f"{i:05d}"), "category"),
        ("user_id", DRAW.integers(0, 10**6, ROWS), "unique"),
        ("row", np.arange(ROWS), "unique"),
        ("row", DRAW.permutation(ROWS) + 1, "unique"),
        ("hash", [f"{i * 2654435761 % 2**32:08x}" for i in range(ROWS)], "unique"),
        ("big", DRAW.integers(2**60, 2**62, ROWS), "unique"),
        ("one", ["x"] * ROWS, "constant"),
        ("one", [7] * ROWS, "constant"),
        ("seen", [None, "x"] * (ROWS // 2), "category"),
        ("flag", [True, False] * (ROWS // 2), "category"),
        ("flag", ["yes", "no"] * (ROWS // 2), "category"),
        ("time", SECONDS, "time"),
        ("time", SECONDS * 1000, "time"),
        ("time", [f"2024-04-{1 + i % 28:02d} {i % 24:02d}:00" for i in range(ROWS)], "time"),
        ("hour", [f"1410{1 + i % 28:02d}{i % 24:02d}" for i in range(ROWS)], "time"),
        ("user_id", SECONDS - SECONDS % 10_000_000 + IDS, "category"),
        ("genres", texts(lambda i: "|".join(["a", "b", "c", "d", "e"][: i % 5 + 1][i % 3 :] or ["a"])), "list"),
        ("tags", texts(lambda i: f"{i % 7} {i % 11} {i % 3}"), "list"),
        ("tags", texts(lambda i: str([f"t{i % 7}", f"t{i % 11}"][: i % 3])), "list"),
        ("tags", texts(lambda i: f'["t{i % 7}, x","t{i % 11}"]'), "list"),
        ("vector", [f"[0.{i}, 0.{i + ROWS}]" for i in range(ROWS)], "unique"),
        ("title", texts(lambda i: f"The Movie {i}"), "category"),
        ("sample_weight", DRAW.random(ROWS), "weight"),
        ("fnlwgt", DRAW.integers(1, 10**6, ROWS), "weight"),
        ("weight", DRAW.random(ROWS), "number"),
        ("age", DRAW.integers(17, 90, ROWS), "number"),  # no evidence either way, so by name
        ("country", DRAW.integers(0, 200, ROWS), "category"),
    ],
)
def test_kinds_of_a_text_file(name: str, values: Any, kind: str) -> None:
    assert found(name, values).kind == kind


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (AMOUNTS.astype(str), "category"),  # the user stored digits as text
        ((SECONDS // 86_400 * 86_400).astype(str), "category"),
        (["1.5", "2.25"] * (ROWS // 2), "number"),
        (AMOUNTS, "number"),
        (AMOUNTS.astype(float), "number"),
        (IDS.astype(float), "category"),  # pandas' integers with NaN
        (SECONDS, "time"),
        (SECONDS.astype("datetime64[s]"), "time"),
        ([True, False] * (ROWS // 2), "category"),
    ],
)
def test_kinds_of_a_file_with_types(values: Any, kind: str) -> None:
    assert found("a", values, typed=True).kind == kind


def test_a_time_becomes_its_hour_and_weekday() -> None:
    rules = found("at", SECONDS).rules
    assert {name: (rule.column, rule.kind, rule.time_format) for name, rule in rules.items()} == {
        "at_hour": ("at", "hour", "seconds"),
        "at_weekday": ("at", "weekday", "seconds"),
    }
    days = [f"2024-04-{1 + i % 28:02d}" for i in range(ROWS)]
    assert list(found("day", days).rules) == ["day_weekday"]
    births = [f"{1950 + i % 50}-0{1 + i % 9}-11" for i in range(ROWS)]
    assert found("born", births).rules == {"born": Rule()}
    assert found("day", [f"0{1 + i % 9}/0{1 + i % 7}/2024" for i in range(ROWS)]).rules == {"day": Rule()}


def test_separators_of_lists_hold_the_spaces_that_are_no_part_of_values() -> None:
    def separator(make: Callable[[int], str]) -> str | None:
        return found("tags", texts(make)).rules["tags"].separator

    assert separator(lambda i: f"a{i % 7}, b{i % 11}, c{i % 3}") == ", "
    assert separator(lambda i: f"a{i % 7},b{i % 11}, c{i % 3}") == ","
    assert separator(lambda i: f"['a{i % 7}', 'b{i % 11}']") == "[]"


def test_counts_with_a_long_tail_get_log_squared_bins() -> None:
    counts = np.floor(np.exp(AMOUNTS / 20)).astype(int) + DRAW.integers(0, 5, ROWS)
    assert found("clicks", counts).rules["clicks"].kind == "log-squared"
    assert found("clicks", AMOUNTS).rules["clicks"].kind == "quantile"


def test_few_rows_leave_nothing_out() -> None:
    assert found("row", np.arange(500)).kind == "number"
    assert found("name", [f"n{i}" for i in range(500)]).kind == "category"


def test_evidence_is_held_out() -> None:
    own = predict(np.arange(ROWS), CLICKS.astype(float))  # a group per row knows nothing of other rows
    none = predict(np.zeros(ROWS, np.int64), CLICKS.astype(float))
    assert own.loss == pytest.approx(none.loss, abs=1e-6)
    known = predict(CLICKS, CLICKS.astype(float))
    assert known.loss < 0.01
    assert known.better_than(none) > 10
    assert auc(known.rates, CLICKS.astype(float)) == 1
    assert auc(np.zeros(ROWS), CLICKS.astype(float)) == 0.5


TABLE = pa.table(
    {
        "row": np.arange(ROWS),
        "user": IDS,
        "amount": AMOUNTS,
        "at": SECONDS,
        "sample_weight": DRAW.random(ROWS),
        "click": CLICKS,
    }
)
KINDS = {"user": "category", "amount": "quantile", "at_hour": "hour", "at_weekday": "weekday"}


def kinds(folder: Path, **settings: Any) -> dict[str, str]:
    path = folder / "rows.csv"
    csv.write_csv(TABLE, path)
    data = prepare(Table(raw=path, label="click", tiers=0, **settings), folder / "data")
    return {field.name: field.rule.kind for field in data.encoder.fields}


def test_prepared_fields_have_the_inferred_kinds(tmp_path: Path) -> None:
    assert kinds(tmp_path) == KINDS


@pytest.mark.parametrize(
    ("settings", "changes"),
    [
        ({"fields": {"user": Rule(kind="log-squared")}}, {"user": "log-squared"}),
        ({"fields": {"user": Rule(min_count=3)}}, {}),
        ({"fields": {"amount": Rule(width=10.0)}}, {"amount": "width"}),
        ({"fields": {"row": Rule(min_count=1)}}, {"row": "category"}),
        ({"fields": {"sample_weight": Rule(bins=4)}}, {"sample_weight": "quantile"}),
        (
            {"fields": {"part": Rule(column="at", kind="hour", time_format="seconds")}},
            {"at_hour": None, "part": "hour"},
        ),
        ({"fields": {"at": Rule(kind="quantile")}}, {"at_hour": None, "at_weekday": None, "at": "quantile"}),
        ({"only": ("row", "user")}, {"amount": None, "at_hour": None, "at_weekday": None, "row": "category"}),
        ({"ignore": ("at",)}, {"at_hour": None, "at_weekday": None}),
    ],
)
def test_settings_win(settings: Any, changes: dict[str, str | None], tmp_path: Path) -> None:
    expected = {name: kind for name, kind in {**KINDS, **changes}.items() if kind}
    assert kinds(tmp_path, **settings) == expected


def test_a_field_of_a_time_never_takes_the_name_of_a_column(tmp_path: Path) -> None:
    table = TABLE.select(["at", "user", "click"]).append_column("at_hour", TABLE["amount"])
    data = prepare(Frame(frame=table, label="click", tiers=0), tmp_path / "a")
    assert data.schema.names == ("at_hour_", "at_weekday", "user", "at_hour")


def test_a_table_of_which_no_column_is_a_field_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"No column is left as a field: 'row' \(integers as dense as row numbers"):
        prepare(Frame(frame=TABLE.select(["row", "click"]), label="click"), tmp_path / "a")


def test_rows_of_valid_and_test_have_no_influence(tmp_path: Path) -> None:
    """Ids in the training rows, but amounts in the others: by column, so that the splits are known."""
    split = pa.array(np.where(np.arange(ROWS) % 2, "train", np.where(np.arange(ROWS) % 4, "valid", "test")))
    train = np.arange(ROWS) % 2 == 1
    table = TABLE.set_column(1, "user", pa.array(np.where(train, IDS, AMOUNTS))).append_column("split", split)
    from fieldwise.data.split import ColumnSplit

    data = prepare(Frame(frame=table, label="click", tiers=0), tmp_path / "a", ColumnSplit(column="split"))
    (user,) = [field for field in data.encoder.fields if field.name == "user"]
    assert user.rule.kind == "category"
    assert len(pc.unique(table["user"])) == 150


def test_kinds_of_a_sample_are_those_of_all_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only some rows are looked at, but a column is unique only if it is so in all training rows."""
    table = TABLE.append_column("pair", pa.array([f"p{i // 2 * 7919 % 10007}" for i in range(ROWS)]))
    pq.write_table(table, tmp_path / "rows.parquet")
    monkeypatch.setattr("fieldwise.data.kinds.sampling.SAMPLE", 2_000)
    data = prepare(Table(raw=tmp_path / "rows.parquet", label="click", tiers=0), tmp_path / "a")
    assert {field.name: field.rule.kind for field in data.encoder.fields} == {**KINDS, "pair": "category"}
