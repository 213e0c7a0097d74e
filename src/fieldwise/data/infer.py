"""A rule for each column by the look of its first rows; the choice is shown, and settings override it."""

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from fieldwise.data.convert import NUMBER
from fieldwise.data.rules import Rule

SMALL: Final = 100
"""Whole numbers with at most so many different values are categories."""
_WHOLE: Final = r"^(0|-?[1-9][0-9]*)$"


def infer(name: str, column: pa.ChunkedArray) -> Rule:
    """Text and few whole numbers are categories, as are whole numbers called an id; other numbers are binned."""
    kind = number_kind(column)
    if kind is None:
        return Rule()
    few = len(pc.unique(pc.drop_null(column))) <= SMALL
    if kind == "whole":
        return Rule() if few or name.lower().endswith("id") else Rule(kind="log-squared")
    return Rule(kind="quantile")


def number_kind(column: pa.ChunkedArray) -> str | None:
    """whole, broken, or nothing where values are no numbers. Text with leading zeros is no number."""
    if pa.types.is_integer(column.type):
        return "whole"
    if pa.types.is_floating(column.type) or pa.types.is_decimal(column.type):
        return "broken"
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        return None
    text = pc.drop_null(column)
    text = text.filter(pc.not_equal(text, ""))
    if not len(text):
        return None
    if pc.all(pc.match_substring_regex(text, _WHOLE)).as_py():
        return "whole"
    zeros = pc.any(pc.match_substring_regex(text, r"^[-+]?0[0-9]")).as_py()
    return "broken" if not zeros and pc.all(pc.match_substring_regex(text, NUMBER)).as_py() else None
