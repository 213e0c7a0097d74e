"""Exact conversions between value types; values that cannot be converted become null."""

from typing import Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fieldwise.data.time_forms import YEAR_FIRST
from fieldwise.data.times import TIMESTAMP, parse_times

NUMBER: Final = r"^[-+]?(([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?|(?i:inf|infinity))$"
TextForm = Literal["integer", "integral_float", "boolean", "mixed"]
"""Form of all texts of a column: 17; 17.0, as pandas writes integers with NaN; true or false in any case; no such."""

_FORMS: Final[dict[TextForm, str]] = {
    "integer": r"^(0|-?[1-9][0-9]*)$",
    "integral_float": r"^(0|-?[1-9][0-9]*)\.0$",
    "boolean": r"^(?i:true|false)$",
}


def normalize_times(column: pa.Array) -> pa.Array:
    """Converts times of any unit and zone to TIMESTAMP, date32 or a time of day in us; durations to integers."""
    kind = column.type
    if pa.types.is_timestamp(kind):
        return column.cast(TIMESTAMP, safe=False)
    if pa.types.is_date(kind):
        return column.cast(pa.date32())
    return column.cast(pa.int64() if pa.types.is_duration(kind) else pa.time64("us"), safe=False)


def timestamps(column: pa.Array, time_format: str | None = None) -> pa.Array:
    """Converts dates, times and text to TIMESTAMP.

    Text has the given form, or is year-first, such as 2024-06-01 or 2024-06-01T13:00:00.5+02:00; other text is null.
    """
    if pa.types.is_timestamp(column.type) or pa.types.is_date(column.type):
        return column.cast(TIMESTAMP, safe=False)
    if not pa.types.is_string(column.type):
        return pa.nulls(len(column), TIMESTAMP)
    if time_format is None:
        return parse_times(column, YEAR_FIRST)
    found = parse_times(column, time_format)
    return found if found.null_count == column.null_count else pc.coalesce(found, parse_times(column, YEAR_FIRST))


def parse_numbers(column: pa.Array) -> tuple[NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_]]:
    """Returns numbers, a mask of the known ones, and a mask of text that is not a number.

    Empty text and NaN are neither known nor bad.
    """
    bad = np.zeros(len(column), dtype=bool)
    if pa.types.is_temporal(column.type):
        column = column.cast(pa.int32() if pa.types.is_date(column.type) else pa.int64())
    if pa.types.is_string(column.type):
        text = pc.utf8_trim_whitespace(column)
        match = pc.match_substring_regex(text, NUMBER)
        empty = pc.fill_null(pc.equal(text, ""), True)
        bad = pc.fill_null(pc.and_(pc.invert(match), pc.invert(empty)), False).to_numpy(zero_copy_only=False)
        column = pc.if_else(match, text, pa.scalar(None, pa.string())).cast(pa.float64())
    found = pc.fill_null(column.cast(pa.float64(), safe=False), np.nan).to_numpy(zero_copy_only=False)
    known = ~np.isnan(found)
    return np.where(known, found, 0.0), known, bad


def integers(column: pa.Array) -> pa.Array:
    """Converts integral values of any type, and text such as 17 or 17.0, to int64.

    Values from 2**63 on keep their uint64 bits.
    """
    if pa.types.is_integer(column.type):
        return column.view(pa.int64()) if pa.types.is_uint64(column.type) else column.cast(pa.int64())
    if pa.types.is_floating(column.type):
        fits = pc.and_(pc.equal(column, pc.floor(column)), pc.less(pc.abs(column), 2.0**63))
        return pc.if_else(fits, column, pa.scalar(None, column.type)).cast(pa.int64())
    if not pa.types.is_string(column.type):
        return pa.nulls(len(column), pa.int64())
    none = pa.scalar(None, pa.string())
    text = pc.replace_substring_regex(column, r"\.0+$", "")
    negative = pc.starts_with(text, "-")
    limit = pc.if_else(negative, str(-(2**63)), str(2**64 - 1))  # both have 20 characters
    length = pc.utf8_length(text)
    fits = pc.or_(pc.less(length, 20), pc.and_(pc.equal(length, 20), pc.less_equal(text, limit)))
    text = pc.if_else(pc.and_(pc.match_substring_regex(text, _FORMS["integer"]), fits), text, none)
    unsigned = pc.if_else(negative, none, text).cast(pa.uint64()).view(pa.int64())
    return pc.coalesce(unsigned, pc.if_else(negative, text, none).cast(pa.int64()))


def text_form(texts: pa.Array) -> TextForm:
    """Returns the form shared by all of some distinct texts, ignoring nulls; mixed if they share none."""
    texts = texts.drop_null()
    for form, pattern in _FORMS.items():  # a few texts first, since most columns fail there
        if all(pc.all(pc.match_substring_regex(part, pattern)).as_py() for part in (texts.slice(0, 99), texts)):
            ambiguous = form == "boolean" and len(pc.unique(pc.utf8_lower(texts))) < len(texts)
            return form if len(texts) and not ambiguous else "mixed"
    return "mixed"


def to_text(column: pa.Array) -> pa.Array:
    """Converts values to text; numbers and times of day lose a fraction of zero."""
    text = column.cast(pa.string())
    if pa.types.is_time(column.type):
        return pc.replace_substring_regex(text, r"\.0+$", "")
    return pc.coalesce(integers(column).cast(pa.string()), text) if pa.types.is_floating(column.type) else text


def alternative_text(column: pa.Array, form: TextForm) -> pa.Array:
    """Converts values to the spelling that `to_text` does not produce; null if there is no other spelling."""
    if pa.types.is_integer(column.type):
        return pc.binary_join_element_wise(column.cast(pa.string()), ".0", "")
    if pa.types.is_floating(column.type):
        return pa.array([None if value is None else repr(value) for value in column.to_pylist()], pa.string())
    none = pa.scalar(None, pa.string())
    if form == "integer":
        matches = pc.match_substring_regex(column, _FORMS["integral_float"])
        return pc.if_else(matches, pc.replace_substring_regex(column, r"\.0$", ""), none)
    if form == "integral_float":
        matches = pc.match_substring_regex(column, _FORMS["integer"])
        return pc.if_else(matches, pc.binary_join_element_wise(column, ".0", ""), none)
    return pa.nulls(len(column), pa.string())
