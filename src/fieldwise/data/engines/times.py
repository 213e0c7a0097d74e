"""Times of a split as ibis expressions; text is parsed with the arithmetic of `data/times.py`."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ibis
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fieldwise.data.convert import NUMBER, timestamps
from fieldwise.data.engines.columns import as_number
from fieldwise.data.engines.staging import read_batches
from fieldwise.data.split import TimeSplit
from fieldwise.data.time_forms import YEAR_FIRST, TimeForm, time_form
from fieldwise.data.times import MAX_UNPARSED, check_unparsed, microseconds, settle_form


def time_reader(column: Any, split: TimeSplit, folder: Path) -> Callable[[Any], Any]:
    """Returns a function from such a column to an expression that sorts by time; null where there is no time.

    `folder` holds the distinct values and their counts, as `value` and `n`. Refuses text of no form.
    """
    kind = column.type()
    if kind.is_temporal():
        return lambda values: values
    if kind.is_numeric() and split.time_format is None:
        return _number
    if split.time_format is None and _are_numbers(folder):
        return lambda values: _number(as_number(values))
    form = split.time_format or settle_form(split.column, _texts(folder)) or YEAR_FIRST
    _check_format(split.column, form, folder)
    forms = dict.fromkeys((form, YEAR_FIRST))
    return lambda values: ibis.coalesce(*(_parsed(values.cast("string"), time_form(name)) for name in forms))


def _number(values: Any) -> Any:
    return ibis.ifelse(values.isnan(), ibis.null(), values) if values.type().is_floating() else values


def _texts(folder: Path) -> Iterator[tuple[pa.Array, pa.Array]]:
    for batch in read_batches(folder):
        yield batch.column("value").cast(pa.string()), batch.column("n")


def _are_numbers(folder: Path) -> bool:
    """Whether almost all rows hold a number."""
    total = numbers = 0
    for texts, counts in _texts(folder):
        text = pc.utf8_trim_whitespace(texts)
        matches = pc.fill_null(pc.match_substring_regex(text, NUMBER), False)
        numbers += pc.sum(counts.filter(matches)).as_py() or 0
        total += pc.sum(counts.filter(pc.fill_null(pc.not_equal(text, ""), False))).as_py() or 0
    return total - numbers <= total * MAX_UNPARSED


def _check_format(column: str, form: str, folder: Path) -> None:
    """Refuses texts that do not have the form, above a small fraction."""
    total = unparsed = 0
    shown: list[str] = []
    for texts, counts in _texts(folder):
        given = pc.fill_null(pc.not_equal(pc.utf8_trim_whitespace(texts), ""), False)
        bad = pc.and_(given, timestamps(texts, form).is_null())
        total += pc.sum(counts.filter(given)).as_py() or 0
        unparsed += pc.sum(counts.filter(bad)).as_py() or 0
        shown += texts.filter(bad).slice(0, 3 - len(shown)).to_pylist()
    check_unparsed(column, unparsed, total, shown, form)


def _parsed(text: Any, form: TimeForm) -> Any:
    """Returns the microseconds since 1970 of text, null if it does not have the form."""
    valid, found = microseconds(form, _ExpressionParts(form, text))
    return ibis.ifelse(valid, found, ibis.null()).cast("int64")


class _ExpressionParts:
    def __init__(self, form: TimeForm, text: Any) -> None:
        self._form, self._text = form, text
        self.matches: Any = text.re_search(form.pattern_of())

    def number(self, group: str, default: int) -> Any:
        if group not in self._form.groups:
            return ibis.literal(default, "int64")
        return _integer(self._group(group), default)

    def text(self, group: str) -> Any:
        return self._group(group).substr(0, 3).lower().fill_null("")

    def fraction(self) -> Any:
        return _integer((self._group("f") + "000000").substr(0, 6), 0)

    def where(self, condition: Any, then: Any, otherwise: Any) -> Any:
        return ibis.ifelse(condition, then, otherwise)

    def _group(self, group: str) -> Any:
        return self._text.re_extract(self._form.pattern_of(group), 1)


def _integer(text: Any, default: int) -> Any:
    return text.nullif("").try_cast("int64").fill_null(np.int64(default))
