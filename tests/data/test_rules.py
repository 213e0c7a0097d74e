"""Rules: bins, times, lists, inference."""

import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fieldwise.data.rules import NOT_A_NUMBER, Kind, Rule


def test_log_squared_is_the_published_formula_on_every_small_integer() -> None:
    numbers = list(range(-5, 60_000))
    expected = [math.floor(math.log(z) ** 2) if z > 2 else z - 2 for z in numbers]
    assert Rule(kind="log-squared").apply(pa.array(numbers)).to_pylist() == expected
    assert Rule(kind="log-squared").apply(pa.array([str(z) for z in numbers])).to_pylist() == expected


@given(st.integers(3, 10**12))
def test_log_squared_is_the_published_formula_on_large_integers(number: int) -> None:
    got = Rule(kind="log-squared").apply(pa.array([number])).to_pylist()
    assert got == [math.floor(math.log(number) ** 2)]


def test_numbers_in_text_are_read_and_other_text_is_unknown() -> None:
    column = pa.array(["3", " 3 ", "3.0", "3e0", "+3", "", None, "x", "0x3", "nan", "-"])
    assert Rule(kind="width", width=1).apply(column).to_pylist() == [3] * 5 + [None] * 2 + [NOT_A_NUMBER] * 4
    assert Rule(kind="width", width=0.5).apply(pa.array([0.49, 0.5, -0.1, float("nan")])).to_pylist() == [
        0,
        1,
        -1,
        None,
    ]


def test_quantile_bins_hold_the_same_share_each() -> None:
    numbers = np.arange(1_000, dtype=float)
    parts = [(part, np.ones(len(part), np.int64)) for part in (numbers[:300], numbers[300:301], numbers[301:])]
    rule = Rule(kind="quantile", bins=4).quantiles(parts, 1_000)
    assert list(rule.edges) == [249, 499, 749]
    assert np.bincount(rule.apply(pa.array(numbers)).to_numpy()).tolist() == [249, 250, 250, 251]
    skewed = Rule(kind="quantile", bins=4).quantiles([(np.array([0.0, 1.0, 2.0]), np.array([90, 5, 5]))], 100)
    assert list(skewed.edges) == [0]


@pytest.mark.parametrize(("kind", "expected"), [("hour", [13, 0]), ("weekday", [1, 5]), ("weekend", [0, 1])])
def test_parts_of_a_time(kind: Kind, expected: list[int]) -> None:
    avazu = Rule(kind=kind, time_format="%y%m%d%H")
    assert avazu.apply(pa.array(["14102113", "14102500"])).to_pylist() == expected
    assert avazu.apply(pa.array([14102113, 14102500])).to_pylist() == expected
    assert avazu.apply(pa.array(["2014-10-21 13:59", "2014-10-25"])).to_pylist() == expected


def test_lists_are_cut_and_never_empty() -> None:
    rule = Rule(separator="|", longest=2)
    lists = rule.lists(pa.array(["a|b|c", "a", "", None]))
    assert lists.to_pylist() == [["a", "b"], ["a"], [""], [None]]
    given_lists = Rule().lists(pa.array([[1, 2], [], None]))
    assert given_lists.to_pylist() == [[1, 2], [None], [None]]
    assert Rule().lists(pa.array(["a|b"])) is None
    brackets = pa.array(["['a', 'b, c']", '["it\'s","d"]', "[1, 2 ]", " ['a' 'b'] ", "[]", "x", None])
    found = [["a", "b, c"], ["it's", "d"], ["1", "2"], ["a", "b"], [None], ["x"], [None]]
    assert Rule(separator="[]").lists(brackets).to_pylist() == found
    same_size = pa.array([[1, 2], None, [3, None]], pa.list_(pa.int32(), 2))
    assert Rule().lists(same_size).to_pylist() == [[1, 2], [None], [3, None]]
