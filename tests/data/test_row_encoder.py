"""One row as a dict gets the ids that rows in a table get, the first time and again."""

import math
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from fieldwise.core.errors import DataError
from fieldwise.data.encoder import Encoder
from fieldwise.data.field_encoder import FieldEncoder
from fieldwise.data.row_encoder import RowEncoder
from fieldwise.data.rules import Rule
from fieldwise.data.vocabulary import Vocabulary
from tests.exports.cases import SMALL


def _field(name: str, values: list[Any], rule: Rule | None = None, **more: Any) -> FieldEncoder:
    return FieldEncoder(name, rule or Rule(), Vocabulary(pa.array(values), pa.nulls(len(values))), **more)


@pytest.mark.parametrize("name", ["awkward", "avazu", "tiers"])
def test_single_rows_get_the_same_ids(name: str, tmp_path: Path) -> None:
    case = SMALL[name](tmp_path)
    encoder = case.data.encoder
    rows, one = case.rows.slice(0, 120), RowEncoder(encoder)
    for _ in range(2):
        found = [one(row) for row in rows.to_pylist()]
        assert np.array_equal(np.concatenate([ids for ids in found if ids is not None]), encoder.encode(rows))


def test_values_of_another_type_are_other_values() -> None:
    encoder = Encoder([_field("x", ["1", "1.5", "true", "0", "-0.0", None]), _field("y", [0, 1])])
    one = RowEncoder(encoder)
    values: list[Any] = [1, 1.0, "1", True, 0, 0.0, -0.0, False, "0", None, 1.5, math.nan, "x" * 999]
    for value in values * 2:
        ids = one({"x": value, "y": 1, "more": object()})
        assert ids is not None
        assert ids.tolist() == encoder.encode({"x": [value], "y": [1]}).tolist(), value


def test_other_rows_are_left_to_the_encoder() -> None:
    one = RowEncoder(Encoder([_field("x", ["a"]), _field("l", ["a"], several=True, length=2)]))
    assert one({"x": "a", "l": "a"}) is not None
    when = datetime(2024, 5, 1)
    others: list[Any] = [{"x": "a"}, {"x": ["a"], "l": ["a"]}, {"x": "a", "l": ["a", "b"]}, {"x": when, "l": "a"}, []]
    assert [one(rows) for rows in others] == [None] * 5
    assert RowEncoder(Encoder([_field("l", ["a"], several=True)]))({"l": "a"}) is None  # a dict of columns


def test_what_the_encoder_refuses_is_refused_every_time() -> None:
    one = RowEncoder(Encoder([_field("t", [1, 2], Rule(kind="hour")), _field("y", [0, 1])]))
    for _ in range(2):
        with pytest.raises(DataError, match="'t'"):
            one({"t": "no time", "y": 1})
        with pytest.raises(DataError, match="'y'"):
            one({"t": "2024-05-01 02:00", "y": 2**70})


def test_the_values_remembered_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fieldwise.data.row_encoder._MOST", 10)
    one = RowEncoder(Encoder([_field("x", list(range(30)))]))
    for value in range(30):
        ids = one({"x": value})
        assert ids is not None
        assert ids.tolist() == [[value + 1]]
    assert len(one._columns[0]._seen) <= 10
