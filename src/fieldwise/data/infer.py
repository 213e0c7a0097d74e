"""Infers a rule for each column from its first rows; the choice is shown, and settings override it."""

from typing import Final, Literal

import pyarrow as pa
import pyarrow.compute as pc

from fieldwise.data.convert import NUMBER
from fieldwise.data.rules import Rule

NumberKind = Literal["integer", "float"]
MAX_INTEGER_CATEGORIES: Final = 100
"""Integers with at most this many distinct values are categories."""
_INTEGER: Final = r"^(0|-?[1-9][0-9]*)$"


def infer(name: str, column: pa.ChunkedArray) -> Rule:
    """Infers a category for text, ids and integers with few distinct values, and bins for other numbers."""
    kind = number_kind(column)
    if kind is None:
        return Rule()
    few = len(pc.unique(pc.drop_null(column))) <= MAX_INTEGER_CATEGORIES
    if kind == "integer":
        return Rule() if few or name.lower().endswith("id") else Rule(kind="log-squared")
    return Rule(kind="quantile")


def number_kind(column: pa.ChunkedArray) -> NumberKind | None:
    """Returns integer or float; None if values are not numbers. Text with leading zeros is not a number."""
    if pa.types.is_integer(column.type):
        return "integer"
    if pa.types.is_floating(column.type) or pa.types.is_decimal(column.type):
        return "float"
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        return None
    text = pc.drop_null(column)
    text = text.filter(pc.not_equal(text, ""))
    if not len(text):
        return None
    if pc.all(pc.match_substring_regex(text, _INTEGER)).as_py():
        return "integer"
    zeros = pc.any(pc.match_substring_regex(text, r"^[-+]?0[0-9]")).as_py()
    return "float" if not zeros and pc.all(pc.match_substring_regex(text, NUMBER)).as_py() else None
