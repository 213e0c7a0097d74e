"""Text: numbers, several values in one text, and spellings that only look like numbers."""

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fieldwise.data.convert import NUMBER
from fieldwise.data.kinds.column import Column
from fieldwise.data.rules import BRACKETS, Rule

SEPARATORS: Final = ("|", ";", ",", " ")
MIN_LISTS: Final = 0.05
"""Minimum fraction of rows with several values."""
MAX_PARTS: Final = 0.5
"""Maximum number of distinct parts, as a fraction of the distinct texts: parts of lists recur in other texts.

In brackets, which show that a text is a list, as a fraction of all parts of all rows.
"""
MAX_TEXTS: Final = 0.01
"""Maximum fraction of rows of a number that are other text."""
_LEADING_ZERO: Final = r"^[-+]?0[0-9]"
_SPACED: Final = r"^[-+]?[0-9]{1,3}([ \x{00A0}\x{202F}'_][0-9]{3})+([.,][0-9]+)?$"


def without_text(column: Column) -> Column:
    """Returns a column of numbers without the few texts among them, which are refused when it is binned."""
    if not column.is_text or not column.distinct:
        return column
    bad = ~np.asarray(pc.match_substring_regex(pc.utf8_trim_whitespace(column.values), NUMBER))
    few = 0 < column.counts[bad].sum() <= MAX_TEXTS * column.known
    return column.without(bad) if few else column


def numbers_in(column: Column) -> NDArray[np.float64] | None:
    """Returns the numbers of the distinct values; None if any is no number.

    Text with leading zeros is no number. Digits that a Parquet file or a frame stores as text stay text.
    """
    if pa.types.is_integer(column.kind) or pa.types.is_floating(column.kind) or pa.types.is_decimal(column.kind):
        numbers: NDArray[np.float64] = column.values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
        return numbers
    if not column.is_text or not column.distinct:
        return None
    text = pc.utf8_trim_whitespace(column.values)
    for part in (text.slice(0, 99), text):  # a few first, since most columns fail there
        if not pc.all(pc.match_substring_regex(part, NUMBER)).as_py():
            return None
    if pc.any(pc.match_substring_regex(text, _LEADING_ZERO)).as_py():
        return None
    found: NDArray[np.float64] = text.cast(pa.float64()).to_numpy(zero_copy_only=False)
    typed = not column.is_text_file and bool((found == np.floor(found)).all())
    return None if typed else found


def has_spaced_numbers(column: Column) -> bool:
    """Whether all texts are numbers once spaces are removed, around them or between thousands."""
    if not column.is_text or not column.distinct:
        return False
    text = pc.utf8_trim_whitespace(column.values)
    spaced = pc.or_(pc.match_substring_regex(text, _SPACED), pc.not_equal(text, column.values))
    number = pc.or_(pc.match_substring_regex(text, NUMBER), pc.match_substring_regex(text, _SPACED))
    return bool(pc.all(number).as_py() and pc.any(spaced).as_py())


@dataclass(frozen=True, slots=True)
class Several:
    """Text that holds several values."""

    separator: str
    parts: int
    """Distinct parts."""
    longest: int
    """Most parts of one text."""


def several_in(column: Column) -> Several | None:
    """Returns the separator of text with several values; None if texts are single values or sentences."""
    if not column.is_text or column.distinct < 3 or has_spaced_numbers(column):
        return None
    if pc.all(pc.match_substring_regex(column.values, r"^\s*\[.*\]\s*$")).as_py():
        return _in_brackets(column)
    for separator in SEPARATORS:
        lists = pc.split_pattern(column.values, separator)
        lengths = np.asarray(pc.list_value_length(lists))
        several = lengths > 1
        if column.counts[several].sum() < MIN_LISTS * column.known:
            continue
        parts = pc.unique(pc.utf8_trim_whitespace(lists.flatten()))
        ids = separator != " " or pc.all(pc.match_substring_regex(parts, r"^[0-9A-Za-z_]*[0-9][0-9A-Za-z_]*$")).as_py()
        if ids and len(parts) <= MAX_PARTS * column.distinct and column.distinct > 3:
            return Several(_spaced(column.values, separator), len(parts), int(lengths.max()))
    return None


def _in_brackets(column: Column) -> Several | None:
    """Returns lists in brackets unless their parts are nearly all distinct, as numbers of vectors are."""
    lists = Rule(separator=BRACKETS, longest=1000).lists(column.values)
    lengths, parts = np.asarray(pc.list_value_length(lists)), pc.unique(lists.flatten().drop_null())
    recur = len(parts) <= MAX_PARTS * (lengths * column.counts).sum()
    return Several(BRACKETS, len(parts), int(lengths.max())) if recur else None


def _spaced(texts: pa.Array, separator: str) -> str:
    """Returns the separator with the space that follows it everywhere, which is not part of the values."""
    spaced = f"{separator} "
    marks, followed = (pc.sum(pc.count_substring(texts, one)).as_py() for one in (separator, spaced))
    return spaced if marks == followed else separator
