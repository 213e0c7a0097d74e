"""Times of a split as ibis expressions; text is parsed with the arithmetic of `data/time_parts.py`."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import ibis
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fieldwise.data.convert import NUMBER, timestamps
from fieldwise.data.engines.staging import read_batches
from fieldwise.data.engines.values import as_number
from fieldwise.data.split import TimeSplit
from fieldwise.data.time_forms import YEAR_FIRST, TimeForm, time_form
from fieldwise.data.time_parts import microseconds, templates
from fieldwise.data.times import MAX_UNPARSED, check_unparsed, settle_form

_MAX_TEMPLATES: Final = 8
"""Templates of all texts up to which an engine cuts texts by template."""


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
    if split.time_format is not None:
        _check_format(split.column, form, folder)
    shapes = _templates(folder)
    forms = [time_form(name) for name in dict.fromkeys((form, split.time_format and YEAR_FIRST)) if name]
    return lambda values: ibis.coalesce(*(parsed(values.cast("string"), each, shapes) for each in forms))


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


def _templates(folder: Path) -> list[str] | None:
    """Returns the texts with 0 for every digit; None if they are many, or do not follow from their length."""
    found: dict[int, str] = {}
    for texts, _ in _texts(folder):
        for template in templates(texts).dictionary.to_pylist():
            if found.setdefault(len(template), template) != template or len(found) > _MAX_TEMPLATES:
                return None
    return list(found.values())


def parsed(text: Any, form: TimeForm, shapes: list[str] | None = None) -> Any:
    """Returns the microseconds since 1970 of text, null if it does not have the form.

    With `shapes`, all texts are these with 0 for every digit, each of another length.
    """
    if shapes is None or not form.by_template:
        valid, found = microseconds(form, _MatchedParts(form, text))
        return ibis.ifelse(valid, found, ibis.null()).cast("int64")
    cases = []
    for shape in shapes:
        spans = form.spans(shape)
        if spans is not None:
            valid, found = microseconds(form, _SlicedParts(text, spans, shape))
            cases.append((text.length() == len(shape), ibis.ifelse(valid, found, ibis.null()).cast("int64")))
    return ibis.cases(*cases) if cases else ibis.null("int64")


class _MatchedParts:
    """Groups found by a regular expression each."""

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


class _SlicedParts:
    """Groups cut out at places that follow from the text's template."""

    def __init__(self, text: Any, spans: dict[str, tuple[int, int]], template: str) -> None:
        self._text, self._spans, self._template = text, spans, template
        self.matches: Any = ibis.literal(True)

    def number(self, group: str, default: int) -> Any:
        start, length = self._spans.get(group, (-1, 0))
        return ibis.literal(default, "int64") if start < 0 else _integer(self._text.substr(start, length), default)

    def text(self, group: str) -> Any:
        start, length = self._spans[group]
        return ibis.literal(self._template[start : start + min(length, 3)].lower() if start >= 0 else "")

    def fraction(self) -> Any:
        start, length = self._spans["f"]
        if start < 0:
            return ibis.literal(0, "int64")
        return _integer((self._text.substr(start, length) + "000000").substr(0, 6), 0)

    def where(self, condition: Any, then: Any, otherwise: Any) -> Any:
        return ibis.ifelse(condition, then, otherwise)


def _integer(text: Any, default: int) -> Any:
    return text.nullif("").try_cast("int64").fill_null(np.int64(default))
