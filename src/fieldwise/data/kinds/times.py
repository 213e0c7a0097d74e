"""Columns of times: typed ones, and text or integers in a common form."""

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fieldwise.data.convert import to_text
from fieldwise.data.kinds import names
from fieldwise.data.kinds.column import Column
from fieldwise.data.rules import Rule
from fieldwise.data.times import MAX_UNPARSED, TIMESTAMP, find_form, parse_times

_HOURLY: Final = "%y%m%d%H"
"""Avazu's form, which is no common one: accepted only if every value has it."""
_SHORTEST: Final = len("1/2/24")
_SHORTEST_NUMBER: Final = 10_000_000
_YEARS: Final = (1990, 2070)
"""Integers are times only within these years."""
_SPAN: Final = 25 * 365.25 * 86_400e6
"""Longest span of integers that are times, in microseconds; random ids spread further."""
MIN_TIMES: Final = 10
"""Fewer distinct integers than this are no times."""
_DENSE: Final = 0.5
"""From this fraction of days with rows on, dates are those of the rows, not of a thing such as a birth."""


@dataclass(frozen=True, slots=True)
class Times:
    """The times of a column's distinct values, and the form of their text."""

    values: pa.Array
    """TIMESTAMP; null where a text is no time."""
    form: str | None = None
    ambiguous: bool = False
    """Whether the day and the month cannot be told apart."""


def times_in(column: Column) -> Times | None:
    """Returns the times of a column; None if its values are no times."""
    if pa.types.is_timestamp(column.kind) or pa.types.is_date(column.kind):
        return Times(column.values.cast(TIMESTAMP, safe=False))
    typed = pa.types.is_integer(column.kind) or pa.types.is_floating(column.kind)
    if not column.distinct or not (typed or column.is_text) or not _may_be_times(column):
        return None
    texts = to_text(column.values.cast(pa.string()) if column.is_text else column.values)
    few = texts.slice(0, 50)  # most columns fail there
    if parse_times(few, _HOURLY).null_count == 0:
        hourly = parse_times(texts, _HOURLY)
        return _checked(column, Times(hourly, _HOURLY), texts) if not hourly.null_count else None
    if find_form(few).unparsed > len(few) // 2:
        return None
    found = find_form(texts.slice(0, 1_000))
    if not found.fits or found.name is None:
        return None
    return _checked(column, Times(parse_times(texts, found.name), found.name, found.ambiguous), texts)


def _may_be_times(column: Column) -> bool:
    """Whether any of the first values is long enough for a time and has a digit; most columns fail there, quickly."""
    first = column.values.slice(0, 5).to_pylist()
    if pa.types.is_floating(column.kind):
        return any(value.is_integer() and value >= _SHORTEST_NUMBER for value in first)
    return any(len(text) >= _SHORTEST and any(map(str.isdigit, text)) for text in map(str, first))


def _checked(column: Column, times: Times, texts: pa.Array) -> Times | None:
    """Returns the times unless too many texts are none, or they are integers that only happen to have the form."""
    valid = np.asarray(times.values.is_valid())
    if column.counts[~valid].sum() > MAX_UNPARSED * column.known:
        return None
    if pc.any(pc.match_substring_regex(texts, r"[^0-9.]")).as_py():
        return times
    digits_stay_text = column.is_text and not column.is_text_file
    if digits_stay_text or column.distinct < MIN_TIMES or names.is_id(column.name):
        return None
    moments = times.values.drop_null()
    years = pc.min_max(pc.year(moments)).as_py()
    inside = _YEARS[0] <= years["min"] and years["max"] <= _YEARS[1]
    spread = np.ptp(moments.cast(pa.int64()).to_numpy())
    return times if inside and spread <= _SPAN else None


def rules_of_times(column: Column, times: Times) -> tuple[dict[str, Rule], str]:
    """Returns the fields made from times, and why: hour and weekday where they vary, or the date itself."""
    moments = times.values.drop_null()
    if times.ambiguous:
        return {column.name: Rule()}, "dates whose day and month look alike, so a category; set kind and time_format"
    given = {} if times.form is None else {"time_format": times.form}
    hours, days = len(pc.unique(pc.hour(moments))), np.unique(_days(moments))
    span = int(days[-1] - days[0]) + 1 if len(days) else 1
    what = f"times of the form {times.form}" if times.form else "times"
    if hours == 1 and (len(days) < _DENSE * span or span < 2):
        return {column.name: Rule()}, f"{what}; the date is a category, since few days of its {span:,} occur"
    kinds = [*(["hour"] if hours > 1 else []), *(["weekday"] if span > 1 else [])]
    given["column"] = column.name
    rules = {f"{column.name}_{kind}": Rule.model_validate({"kind": kind, **given}) for kind in kinds}
    return rules, f"{what}; fields: {' and '.join(kinds)}"


def _days(moments: pa.Array) -> NDArray[np.int64]:
    found: NDArray[np.int64] = moments.cast(pa.int64()).to_numpy() // 86_400_000_000
    return found
