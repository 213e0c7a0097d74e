"""Times in text: which forms are recognized, what is refused, and the same answer from Arrow and the engines."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from fieldwise.core.errors import DataError
from fieldwise.data.time_forms import FORMS, time_form
from fieldwise.data.times import find_form, parse_times, settle_form
from tests.data.times_in_text import NOT_TIMES, TEXTS


@pytest.mark.parametrize("text", TEXTS)
def test_common_forms_are_recognized_and_parsed(text: str) -> None:
    form, expected = TEXTS[text]
    found = find_form(pa.array([text, None, ""]))
    assert (found.name, found.texts, found.unparsed, found.ambiguous) == (form, 1, 0, False)
    assert parse_times(pa.array([text, None]), form).to_pylist() == [expected, None]


def test_other_text_and_days_that_do_not_exist_are_no_times() -> None:
    for form in FORMS:
        assert parse_times(pa.array(NOT_TIMES), form).null_count == len(NOT_TIMES), form
    assert find_form(pa.array(NOT_TIMES)).name is None


def test_every_day_from_1_to_9999_is_counted_as_in_the_standard_library() -> None:
    numbers = np.random.default_rng(0).integers(1, 3_652_059, 3_000)
    days = [datetime.fromordinal(int(number)) for number in numbers]
    for form, text in (
        ("year-first", "{1:04}-{2:02}-{3:02}"),
        ("day-first", "{3}/{2}/{1:04}"),
        ("month-first", "{2}/{3}/{1:04}"),
    ):
        texts = [text.format("", day.year, day.month, day.day) for day in days]
        assert parse_times(pa.array(texts), form).to_pylist() == days


def test_formats_are_read_as_the_standard_library_reads_them() -> None:
    times = [datetime(2024, 4, 1) + timedelta(hours=7 * i, minutes=i, seconds=3 * i) for i in range(99)]
    for form in ("%y%m%d%H", "%d.%m.%Y %H:%M", "%Y%m%d%H%M%S", "%I:%M %p, %d %b %Y", "%a %b %d %H:%M:%S %Y", "%H:%M"):
        texts = [time.strftime(form) for time in times]
        expected = [datetime.strptime(text, form) for text in texts]
        expected = [time.replace(year=1970) if time.year == 1900 else time for time in expected]
        assert parse_times(pa.array(texts), form).to_pylist() == expected, form
    east = timezone(timedelta(hours=5, minutes=30))
    zoned = [time.replace(tzinfo=east) for time in times]
    found = parse_times(pa.array([time.strftime("%d/%m/%Y %H:%M:%S %z") for time in zoned]), "%d/%m/%Y %H:%M:%S %z")
    assert found.to_pylist() == [time.astimezone(UTC).replace(tzinfo=None) for time in zoned]


@pytest.mark.parametrize(("given", "says"), [
    ("iso", "allowed: year-first, compact"), ("%Q", "%Q is not supported. Allowed: %Y"), ("%d/%d", "%d is given twice"),
    ("%", "% is not supported"),
])  # fmt: skip
def test_formats_that_are_not_understood_are_named(given: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        time_form(given)


def settled(texts: list[Any]) -> str | None:
    """The form of two batches of distinct texts."""
    half = len(texts) // 2
    parts = [pa.array(texts[:half], pa.string()), pa.array(texts[half:], pa.string())]
    return settle_form("at", ((part, [1] * len(part)) for part in parts))


def test_the_order_of_day_and_month_follows_from_the_values() -> None:
    early = [f"{day:02d}/04/2024" for day in range(1, 13)]
    assert settled([*early, "13/04/2024"]) == "day-first"
    assert settled(["04/13/2024", *early]) == "month-first"
    assert settled([text.replace("/", ".") for text in early]) == "day-first"  # nobody writes 04.24.2024
    with pytest.raises(DataError, match=r"'at' are ambiguous: in '01/04/2024'.*'day-first' or 'month-first'"):
        settled(early)


def test_a_small_fraction_of_other_text_is_accepted_and_more_is_refused() -> None:
    days = [f"2024-04-{1 + i % 30:02d} {i // 60 % 24}:{i % 60:02d}" for i in range(2_000)]
    assert settled([*days, *["?"] * 20]) == "year-first"
    with pytest.raises(DataError) as caught:
        settled([*days, *(f"soon {i}" for i in range(30))])
    assert str(caught.value).startswith(
        "Column 'at': 30 of 2,030 texts are not times of the form year-first, such as 'soon 0', 'soon 1', 'soon 2'. "
        "Allowed: at most 1%. Set time_format"
    )
    assert len(str(caught.value).splitlines()) == 1
    with pytest.raises(DataError, match=r"3 of 3 texts are no times, such as 'a', 'b', 'c'"):
        settled(["a", "b", "c"])
    assert settled([None, "", " "]) is None
