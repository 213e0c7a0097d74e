"""Times in text: recognizes their form and parses them, with one arithmetic for Arrow and for engines."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fieldwise.core.errors import DataError
from fieldwise.data.time_forms import FORMS, UNITS, TimeForm, time_form

TIMESTAMP: Final = pa.timestamp("us")
"""Common type of all times: microseconds since 1970, in UTC if the time has a zone, else unchanged."""
MAX_UNPARSED: Final = 0.01
"""Fraction of texts that may be no times; more are refused."""
MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_SHOWN: Final = 3
_MAX_TEMPLATES: Final = 32
"""Templates of a batch up to which texts are cut by template."""
_FIRST: Final = 1_000
"""Texts that show which forms are possible, before many are parsed."""


class Parts(Protocol):
    """The groups of a form found in a column: arrays of numpy, or expressions of an engine."""

    matches: Any
    """Whether the text has the form."""

    def number(self, group: str, default: int) -> Any:
        """Returns a group as integers; the default where it is absent."""

    def text(self, group: str) -> Any:
        """Returns a group as lowercase text; empty where it is absent."""

    def fraction(self) -> Any:
        """Returns the group f as microseconds."""

    def where(self, condition: Any, then: Any, otherwise: Any) -> Any:
        """Chooses by condition."""


def microseconds(form: TimeForm, parts: Parts) -> tuple[Any, Any]:
    """Returns a mask of valid times, and their microseconds since 1970; only arithmetic that all engines have."""
    unit = next((group for group in UNITS if group in form.groups), None)
    fraction = parts.fraction() if "f" in form.groups else 0
    if unit:
        return parts.matches, parts.number(unit, 0) * UNITS[unit] + fraction
    year, month = _year(form, parts), _month(form, parts)
    day, hour = parts.number("d", 1), parts.number("H", 0)
    minute, second = parts.number("M", 0), parts.number("S", 0)
    leap = ((year % 4 == 0) & (year % 100 != 0)) | (year % 400 == 0)
    short = (month == 4) | (month == 6) | (month == 9) | (month == 11)
    days = parts.where(month == 2, parts.where(leap, 29, 28), parts.where(short, 30, 31))
    valid = parts.matches & (year >= 1) & (month >= 1) & (month <= 12) & (day >= 1) & (day <= days)
    if "p" in form.groups:
        half = parts.text("p")
        valid = valid & ((half == "") | ((hour >= 1) & (hour <= 12)))
        hour = parts.where(half == "", hour, hour % 12 + parts.where(half == "pm", 12, 0))
    valid = valid & (hour <= 23) & (minute <= 59) & (second <= 59)
    seconds = (_days(year, month, day, parts) * 24 + hour) * 3600 + minute * 60 + second
    if "o" in form.groups:
        ahead = parts.number("h", 0) * 3600 + parts.number("n", 0) * 60
        valid = valid & (parts.number("h", 0) <= 23) & (parts.number("n", 0) <= 59)
        seconds = seconds - parts.where(parts.text("o") == "-", ahead * -1, ahead)
    return valid, seconds * 1_000_000 + fraction


def _year(form: TimeForm, parts: Parts) -> Any:
    full = parts.number("Y", 1970)
    if "y" not in form.groups:
        return full
    short = parts.number("y", -1)
    return parts.where(short < 0, full, short + parts.where(short < 69, 2000, 1900))


def _month(form: TimeForm, parts: Parts) -> Any:
    found = parts.number("m", 1)
    if "b" not in form.groups:
        return found
    name = parts.text("b")
    number: Any = parts.where(name == "", found, 0)
    for index, month in enumerate(MONTHS, 1):
        number = parts.where(name == month, index, number)
    return number


def _days(year: Any, month: Any, day: Any, parts: Parts) -> Any:
    """Returns the days since 1970 in the Gregorian calendar, counted from March so that leap days come last."""
    year = year - parts.where(month <= 2, 1, 0)
    month = month + parts.where(month <= 2, 9, -3)
    return year * 365 + year // 4 - year // 100 + year // 400 + (month * 153 + 2) // 5 + day - 719_469


class _MatchedParts:
    """Groups found by the regular expression, one text at a time."""

    def __init__(self, form: TimeForm, column: pa.Array) -> None:
        found = pc.extract_regex(column, form.pattern)
        self.matches: Any = found.is_valid().to_numpy(zero_copy_only=False)
        self._groups = {group: pc.struct_field(found, group) for group in form.groups}

    def number(self, group: str, default: int) -> NDArray[np.int64]:
        if group not in self._groups:
            return np.full(len(self.matches), default, np.int64)
        return _integers(self._groups[group], default)

    def text(self, group: str) -> NDArray[Any]:
        start = pc.utf8_slice_codeunits(pc.fill_null(self._groups[group], ""), 0, 3)
        return np.asarray(pc.utf8_lower(start).to_numpy(zero_copy_only=False), dtype=object)

    def fraction(self) -> NDArray[np.int64]:
        return _fraction(self._groups["f"])

    def where(self, condition: Any, then: Any, otherwise: Any) -> Any:
        return np.where(condition, then, otherwise)


class _SlicedParts:
    """Groups cut out at the places that follow from a template, for texts that all have it: ten times faster."""

    def __init__(self, spans: dict[str, tuple[int, int]], template: str, column: pa.Array) -> None:
        self.matches: Any = np.ones(len(column), bool)
        self._spans, self._template, self._column = spans, template, column

    def number(self, group: str, default: int) -> Any:
        start, length = self._spans.get(group, (-1, 0))
        return np.int64(default) if start < 0 else _integers(self._slice(start, length), default)

    def text(self, group: str) -> str:
        start, length = self._spans[group]
        return self._template[start : start + min(length, 3)].lower() if start >= 0 else ""

    def fraction(self) -> Any:
        start, length = self._spans["f"]
        return 0 if start < 0 else _fraction(self._slice(start, length))

    def where(self, condition: Any, then: Any, otherwise: Any) -> Any:
        return np.where(condition, then, otherwise)

    def _slice(self, start: int, length: int) -> pa.Array:
        return pc.utf8_slice_codeunits(self._column, start, start + length)


def _fraction(column: pa.Array) -> NDArray[np.int64]:
    padded = pc.binary_join_element_wise(column, "000000", "")
    return _integers(pc.utf8_slice_codeunits(padded, 0, 6), 0)


def _integers(column: pa.Array, default: int) -> NDArray[np.int64]:
    empty = pc.equal(column, "")
    found = pc.if_else(empty, pa.scalar(None, pa.string()), column).cast(pa.int64())
    numbers: NDArray[np.int64] = pc.fill_null(found, default).to_numpy(zero_copy_only=False)
    return numbers


def templates(column: pa.Array) -> pa.DictionaryArray:
    """Returns the texts with 0 for every digit."""
    return pc.replace_substring_regex(column, "[0-9]", "0").dictionary_encode()


def parse_times(column: pa.Array, time_format: str) -> pa.Array:
    """Converts text of one form to TIMESTAMP; other text, dates that do not exist and null become null."""
    form = time_form(time_format)
    shapes = templates(column) if form.by_template else None
    if shapes is None or len(shapes.dictionary) > _MAX_TEMPLATES:
        valid, found = microseconds(form, _MatchedParts(form, column))
        return pa.array(found, mask=~valid).cast(TIMESTAMP)
    found, valid = np.zeros(len(column), np.int64), np.zeros(len(column), bool)
    places = pc.fill_null(shapes.indices, -1).to_numpy(zero_copy_only=False)
    for index, template in enumerate(shapes.dictionary.to_pylist()):
        spans = form.spans(template)
        if spans is not None:
            rows = np.flatnonzero(places == index)
            parts = _SlicedParts(spans, template, column if len(rows) == len(column) else column.take(pa.array(rows)))
            valid[rows], found[rows] = microseconds(form, parts)
    return pa.array(found, mask=~valid).cast(TIMESTAMP)


@dataclass(frozen=True, slots=True)
class FoundForm:
    """The form that fits most of some texts."""

    name: str | None
    """A name in FORMS; None if no text is a time."""
    texts: int = 0
    """Number of texts, without nulls and empty ones."""
    unparsed: int = 0
    """Number of texts that do not have the form."""
    ambiguous: bool = False
    """Whether day-first and month-first fit alike."""
    examples: tuple[str, ...] = ()
    """A few texts: of the ambiguous ones, else of those that do not have the form."""

    @property
    def fits(self) -> bool:
        """Whether almost all texts have the form."""
        return self.name is not None and self.unparsed <= self.texts * MAX_UNPARSED

    @property
    def settled(self) -> bool:
        """Whether almost all texts have the form, beyond doubt about days and months."""
        return self.fits and not self.ambiguous


class FormFinder:
    """Recognizes the form of distinct texts, batch by batch."""

    def __init__(self) -> None:
        self._texts = 0
        self._parsed = dict.fromkeys(FORMS, 0)
        self._good: list[str] = []
        self._bad: dict[str, list[str]] = {name: [] for name in FORMS}

    def add(self, texts: pa.Array, counts: Any = None) -> None:
        """Adds distinct texts with their counts, 1 each by default; nulls and empty texts do not count."""
        if self._texts < _FIRST < len(texts):
            self._add(texts[:_FIRST], None if counts is None else counts[:_FIRST])
            texts, counts = texts[_FIRST:], None if counts is None else counts[_FIRST:]
        self._add(texts, counts)

    def _add(self, texts: pa.Array, counts: Any) -> None:
        weights = np.ones(len(texts), np.int64) if counts is None else np.asarray(counts, np.int64)
        given = np.asarray(pc.fill_null(pc.not_equal(pc.utf8_trim_whitespace(texts), ""), False))
        self._texts += int(weights[given].sum())
        _extend(self._good, texts, given)
        for name in self._parsed:
            parsed = np.asarray(parse_times(texts, name).is_valid())
            self._parsed[name] += int(weights[parsed].sum())
            _extend(self._bad[name], texts, given & ~parsed)
        if self._texts >= _FIRST:  # few forms remain, so that many texts are parsed once or twice
            likely = {name: count for name, count in self._parsed.items() if count > self._texts // 2}
            self._parsed = likely or {name: self._parsed[name] for name in list(self._parsed)[:1]}

    def found(self) -> FoundForm:
        """Returns the form of most texts; the first in FORMS if several fit alike."""
        best = max(self._parsed.values())
        if not best:
            return FoundForm(None, self._texts, self._texts, examples=tuple(self._good))
        names = [name for name in FORMS if self._parsed.get(name) == best]
        ambiguous = names[0] == "day-first" and len(names) > 1
        shown = self._good if ambiguous else self._bad[names[0]]
        return FoundForm(names[0], self._texts, self._texts - best, ambiguous, tuple(shown))


def find_form(texts: pa.Array | pa.ChunkedArray) -> FoundForm:
    """Recognizes the form of a column of text or integers."""
    finder = FormFinder()
    counted = pc.value_counts(texts.cast(pa.string()))
    finder.add(counted.field("values"), counted.field("counts"))
    return finder.found()


def settle_form(name: str, batches: Iterable[tuple[pa.Array, Any]]) -> str | None:
    """Returns the form of a column's distinct texts; refuses texts of no form, and days that may be months.

    None if there are no texts. `name` is the column; `batches` are texts and their counts.
    """
    finder = FormFinder()
    for texts, counts in batches:
        finder.add(texts, counts)
    found = finder.found()
    if not found.texts:
        return None
    if found.ambiguous:
        raise DataError(
            f"Times of column '{name}' are ambiguous: in {_quoted(found.examples)}, either part may be the day. Set "
            "time_format to 'day-first' or 'month-first'."
        )
    check_unparsed(name, found.unparsed, found.texts, found.examples, found.name)
    return found.name


def check_unparsed(name: str, unparsed: int, texts: int, shown: Sequence[str], time_format: str | None) -> None:
    """Refuses a column in which more than a small fraction of the texts are no times."""
    if unparsed > texts * MAX_UNPARSED:
        what = "are no times" if time_format is None else f"are not times of the form {time_format}"
        raise DataError(
            f"Column '{name}': {unparsed:,} of {texts:,} texts {what}, such as {_quoted(shown)}. Allowed: at most "
            f"{MAX_UNPARSED:.0%}. Set time_format ({', '.join(FORMS)}, or a strptime format), or fix the rows."
        )


def _extend(shown: list[str], texts: pa.Array, chosen: NDArray[np.bool_]) -> None:
    """Adds some of the chosen texts until there are a few."""
    for index in np.flatnonzero(chosen)[: _SHOWN - len(shown)] if len(shown) < _SHOWN else ():
        shown.append(texts[int(index)].as_py())


def _quoted(texts: Sequence[str]) -> str:
    return ", ".join(repr(text[:40]) for text in texts)
