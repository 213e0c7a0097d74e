"""Values of one type read as another, where that is exact; what cannot be read so becomes null."""

from typing import Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

NUMBER: Final = r"^[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?$"
Form = Literal["whole", "dotted", "truth"]
"""How all texts of a vocabulary are written: 17; 17.0, as whole numbers beside NaN are; true and false in any case."""

MOMENT: Final = pa.timestamp("us")
"""Every time there is: microseconds since 1970, in UTC where the time has a zone, else as it is written."""
_FORMS: Final[dict[Form, str]] = {
    "whole": r"^(0|-?[1-9][0-9]*)$",
    "dotted": r"^(0|-?[1-9][0-9]*)\.0$",
    "truth": r"^(?i:true|false)$",
}
_ISO: Final = (
    r"^[0-9]{4}-[0-9]{2}-[0-9]{2}([ T]([01][0-9]|2[0-3])"
    r"(:[0-5][0-9](:[0-5][0-9](\.[0-9]{1,9})?)?(Z|[-+]([01][0-9]|2[0-3])(:?[0-5][0-9])?)?)?)?$"
)


def plain_times(column: pa.Array) -> pa.Array:
    """Times of any unit and zone as MOMENT, a day (date32) or a time of day in microseconds; spans as their number."""
    kind = column.type
    if pa.types.is_timestamp(kind):
        return column.cast(MOMENT, safe=False)
    if pa.types.is_date(kind):
        return column.cast(pa.date32())
    return column.cast(pa.int64() if pa.types.is_duration(kind) else pa.time64("us"), safe=False)


def moments(column: pa.Array) -> pa.Array:
    """Days, times and text such as 2024-06-01, 2024-06-01 13:00:00 or 2024-06-01T13:00:00.5+02:00 as MOMENT."""
    if pa.types.is_timestamp(column.type) or pa.types.is_date(column.type):
        return column.cast(MOMENT, safe=False)
    if not pa.types.is_string(column.type):
        return pa.nulls(len(column), MOMENT)
    none = pa.scalar(None, pa.string())
    text = pc.if_else(pc.match_substring_regex(column, _ISO), column, none)
    day = pc.utf8_slice_codeunits(text, 0, 10)
    real = pc.strftime(pc.strptime(day, format="%Y-%m-%d", unit="s", error_is_null=True), format="%Y-%m-%d")
    text = pc.if_else(pc.equal(real, day), text, none)  # there is no 30th of February
    text = pc.replace_substring_regex(text, r"(\.[0-9]{6})[0-9]+", r"\1")
    zoned = pc.match_substring_regex(pc.utf8_slice_codeunits(text, 10), "[-+Z]")
    there = pc.if_else(zoned, text, none).cast(pa.timestamp("us", "UTC")).cast(MOMENT)
    return pc.coalesce(there, pc.if_else(zoned, none, text).cast(MOMENT))


def numbers_in(column: pa.Array) -> tuple[NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_]]:
    """Numbers, which are known, and which are text that is no number. Empty text and NaN are not known."""
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


def wholes(column: pa.Array) -> pa.Array:
    """Whole numbers of any type, and text such as 17 or 17.0, as int64; from 2**63 on by their bits, as uint64."""
    if pa.types.is_integer(column.type):
        return column.view(pa.int64()) if pa.types.is_uint64(column.type) else column.cast(pa.int64())
    if pa.types.is_floating(column.type):
        fits = pc.and_(pc.equal(column, pc.floor(column)), pc.less(pc.abs(column), 2.0**63))
        return pc.if_else(fits, column, pa.scalar(None, column.type)).cast(pa.int64())
    if not pa.types.is_string(column.type):
        return pa.nulls(len(column), pa.int64())
    none = pa.scalar(None, pa.string())
    text = pc.replace_substring_regex(column, r"\.0+$", "")
    below = pc.starts_with(text, "-")
    last = pc.if_else(below, str(-(2**63)), str(2**64 - 1))  # 20 characters both
    length = pc.utf8_length(text)
    fits = pc.or_(pc.less(length, 20), pc.and_(pc.equal(length, 20), pc.less_equal(text, last)))
    text = pc.if_else(pc.and_(pc.match_substring_regex(text, _FORMS["whole"]), fits), text, none)
    above = pc.if_else(below, none, text).cast(pa.uint64()).view(pa.int64())
    return pc.coalesce(above, pc.if_else(below, text, none).cast(pa.int64()))


def form_of(texts: pa.Array) -> Form | None:
    """The form that all of some different texts have, null aside; nothing where there is none."""
    texts = texts.drop_null()
    for form, pattern in _FORMS.items():
        if all(pc.all(pc.match_substring_regex(part, pattern)).as_py() for part in (texts.slice(0, 99), texts)):
            alike = form == "truth" and len(pc.unique(pc.utf8_lower(texts))) < len(texts)
            return form if len(texts) and not alike else None
    return None


def written(column: pa.Array) -> pa.Array:
    """Values as text, numbers and times of day without zeros behind the point."""
    text = column.cast(pa.string())
    if pa.types.is_time(column.type):
        return pc.replace_substring_regex(text, r"\.0+$", "")
    return pc.coalesce(wholes(column).cast(pa.string()), text) if pa.types.is_floating(column.type) else text


def rewritten(column: pa.Array, form: Form | None) -> pa.Array:
    """Values as the text that `written` does not give, as texts of a form have it; null where there is no other."""
    if pa.types.is_integer(column.type):
        return pc.binary_join_element_wise(column.cast(pa.string()), ".0", "")
    if pa.types.is_floating(column.type):
        return pa.array([None if value is None else repr(value) for value in column.to_pylist()], pa.string())
    none = pa.scalar(None, pa.string())
    if form == "whole":
        dotted = pc.match_substring_regex(column, _FORMS["dotted"])
        return pc.if_else(dotted, pc.replace_substring_regex(column, r"\.0$", ""), none)
    if form == "dotted":
        whole = pc.match_substring_regex(column, _FORMS["whole"])
        return pc.if_else(whole, pc.binary_join_element_wise(column, ".0", ""), none)
    return pa.nulls(len(column), pa.string())
