"""Times in text: recognizes their form and parses them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fieldwise.core.errors import DataError
from fieldwise.data.time_forms import FORMS, time_form
from fieldwise.data.time_parts import matched, microseconds, sliced, templates

TIMESTAMP: Final = pa.timestamp("us")
"""Common type of all times: microseconds since 1970, in UTC if the time has a zone, else unchanged."""
MAX_UNPARSED: Final = 0.01
"""Fraction of texts that may be no times; more are refused."""
_SHOWN: Final = 3
_MAX_TEMPLATES: Final = 32
"""Templates of a batch up to which texts are cut by template."""
_FIRST: Final = 1_000
"""Texts that show which forms are possible, before many are parsed."""


def parse_times(column: pa.Array, time_format: str) -> pa.Array:
    """Converts text of one form to TIMESTAMP; other text, dates that do not exist and null become null."""
    form = time_form(time_format)
    shapes = templates(column) if form.by_template else None
    if shapes is None or len(shapes.dictionary) > _MAX_TEMPLATES:
        valid, found = microseconds(form, matched(form, column))
        return pa.array(found, mask=~valid).cast(TIMESTAMP)
    found, valid = np.zeros(len(column), np.int64), np.zeros(len(column), bool)
    places = pc.fill_null(shapes.indices, -1).to_numpy(zero_copy_only=False)
    for index, template in enumerate(shapes.dictionary.to_pylist()):
        spans = form.spans(template)
        if spans is not None:
            rows = np.flatnonzero(places == index)
            parts = sliced(spans, template, column if len(rows) == len(column) else column.take(pa.array(rows)))
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
