"""The kind of one column, the rules of its fields, and the reason in plain words."""

from dataclasses import dataclass, field
from typing import Final, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fieldwise.data.kinds import names
from fieldwise.data.kinds.column import Column
from fieldwise.data.kinds.numbers import is_heavy_tailed, is_row_number, is_uniform, judge
from fieldwise.data.kinds.texts import numbers_in, several_in, without_text
from fieldwise.data.kinds.times import rules_of_times, times_in
from fieldwise.data.rules import BRACKETS, Rule

FoundKind = Literal["category", "number", "time", "list", "unique", "constant", "weight"]
"""The last three are no fields."""
MIN_ROWS: Final = 1_000
"""Fewer rows with a value than this do not show that values are nearly unique."""
NEARLY_UNIQUE: Final = 0.95
"""From this fraction of distinct values on, a column is nearly unique."""
_LONGEST: Final = 64
"""Values per row of an inferred list that are kept at most."""


@dataclass(frozen=True, slots=True)
class Found:
    """What a column is, and what becomes of it."""

    kind: FoundKind
    reason: str
    rules: dict[str, Rule] = field(default_factory=dict)
    """The fields made from the column; none if it is left out."""
    otherwise: Rule = field(default_factory=Rule)
    """The rule of a column that is left out, if the settings name it."""
    is_inferred: bool = True
    """Whether the kind follows from the values, not from the settings or the source."""


def infer(column: Column, rows: int, counted: tuple[int, int], is_a_list: bool = False) -> Found:
    """Infers the kind of a column.

    `rows` are all rows of the table, `counted` the training rows that have a value, and their distinct values.
    """
    plain = {column.name: Rule()}
    if is_a_list:
        return Found("list", "a list per row", plain)
    if column.distinct + (column.known < len(column.codes)) < 2:
        return Found("constant", "one value", plain)
    if pa.types.is_boolean(column.kind):
        return Found("category", "true or false", plain)
    times = times_in(column)
    if times is not None:
        made, reason = rules_of_times(column, times)
        return Found("time", reason, made)
    only_numbers = without_text(column)
    numbers = numbers_in(only_numbers)
    if numbers is not None:
        return _of_numbers(only_numbers, numbers, rows, counted)
    several = several_in(column)
    if several is not None:
        return _of_lists(column, several.separator, several.parts, several.longest)
    if _is_unique(column, counted):
        return Found("unique", "nearly every row has its own text")
    return Found("category", "text" if column.is_text else str(column.kind), plain)


def _of_lists(column: Column, separator: str, parts: int, longest: int) -> Found:
    rule = Rule(separator=separator) if longest <= Rule().longest else Rule(separator=separator, longest=_LONGEST)
    form = "a list in brackets" if separator == BRACKETS else f"text with several values, separated by {separator!r}"
    reason = f"{form}: {parts:,} distinct, at most {longest} per row"
    return Found("list", reason, {column.name: rule})


def _of_numbers(column: Column, numbers: NDArray[np.float64], rows: int, counted: tuple[int, int]) -> Found:
    if names.is_weight(column.name) and numbers.min() >= 0 and column.distinct > 2:
        return Found("weight", "numbers whose name says weight of a row", otherwise=Rule(kind="quantile"))
    finite = numbers[np.isfinite(numbers)]
    if not len(finite) or (finite != np.floor(finite)).any():
        return Found("number", "numbers with fractions", {column.name: Rule(kind="quantile")})
    if _is_unique(column, counted):
        if is_row_number(finite, rows):
            return Found("unique", "integers as dense as row numbers, and nearly all distinct")
        if names.is_id(column.name) or np.abs(finite).max() > 2.0**53 or is_uniform(finite):
            return Found("unique", "ids or hashes that are nearly all distinct")
    verdict = judge(column, numbers, counted[0] / max(1, counted[1]))
    if verdict.kind == "category":
        return Found("category", verdict.reason, {column.name: Rule()})
    kind: Literal["log-squared", "quantile"] = "log-squared" if is_heavy_tailed(column, finite) else "quantile"
    return Found("number", verdict.reason, {column.name: Rule(kind=kind)})


def _is_unique(column: Column, counted: tuple[int, int]) -> bool:
    """Whether values are nearly unique, in the sampled rows and then in all training rows."""
    if column.known < MIN_ROWS or column.distinct < NEARLY_UNIQUE * column.known:
        return False
    known, values = counted
    return values >= NEARLY_UNIQUE * known
