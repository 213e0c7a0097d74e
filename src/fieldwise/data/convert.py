"""Values of one type read as another, where that is exact; what cannot be read so becomes null."""

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

MOMENT: Final = pa.timestamp("us")
"""Every time there is: microseconds since 1970, in UTC where the time has a zone, else as it is written."""
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
