"""Forms of times in text: regular expressions that Arrow, DuckDB and Spark read alike."""

import re
from dataclasses import dataclass
from functools import cache
from typing import Final

UNITS: Final = {"s": 1_000_000, "ms": 1_000, "us": 1}
"""Microseconds of the groups that count from 1970."""

_ZONE: Final = r"(?:(?P<Z>Z|UTC|GMT)|(?P<o>[-+])(?P<h>[0-9]{2}):?(?P<n>[0-9]{2})?)"
_CLOCK: Final = (
    r"(?P<H>[0-9]{1,2})"
    r"(?::(?P<M>[0-9]{2})(?::(?P<S>[0-9]{2})(?:[.,](?P<f>[0-9]{1,9}))?)?(?: ?(?P<p>[AaPp][Mm]))?(?: ?" + _ZONE + r")?)?"
)
_TIME: Final = r"(?:(?:,? +|[T:])" + _CLOCK + r")?"
_YEAR: Final = r"(?:(?P<Y>[0-9]{4})|(?P<y>[0-9]{2}))"
_MONTH: Final = r"(?:(?P<m>[0-9]{1,2})|(?P<b>[A-Za-z]{3,9}))"
_FRACTION: Final = r"(?:\.(?P<f>[0-9]{1,9}))?"
_NAMED: Final[dict[str, str]] = {
    "year-first": r"(?P<Y>[0-9]{4})[-/.](?P<m>[0-9]{1,2})[-/.](?P<d>[0-9]{1,2})" + _TIME,
    "compact": r"(?P<Y>(?:19|20)[0-9]{2})(?P<m>[0-9]{2})(?P<d>[0-9]{2})"
    r"(?:[ T]?(?P<H>[0-9]{2})(?::?(?P<M>[0-9]{2})(?::?(?P<S>[0-9]{2})" + _ZONE + r"?)?)?)?",
    "seconds": r"(?P<s>[0-9]{9,10})" + _FRACTION,
    "milliseconds": r"(?P<ms>[0-9]{12,13})(?:\.0+)?",
    "microseconds": r"(?P<us>[0-9]{15,16})(?:\.0+)?",
    "day-first": r"(?:[A-Za-z]{3},? )?(?P<d>[0-9]{1,2})[-/. ]" + _MONTH + r"[-/. ]" + _YEAR + _TIME,
    "month-first": _MONTH + r"[-/ ](?P<d>[0-9]{1,2})(?:[-/]|,? )" + _YEAR + _TIME,
}
YEAR_FIRST: Final = "year-first"
FORMS: Final = tuple(_NAMED)
"""Names of the forms that are recognized; the first that fits wins, except that day and month are told apart."""
_EXPANDED: Final = {"%F": "%Y-%m-%d", "%T": "%H:%M:%S", "%R": "%H:%M", "%D": "%m/%d/%y", "%e": "%d"}
_DIRECTIVES: Final = {
    "Y": "(?P<Y>[0-9]{4})",
    "y": "(?P<y>[0-9]{2})",
    "b": "(?P<b>[A-Za-z]{3,9})",
    "B": "(?P<b>[A-Za-z]{3,9})",
    "f": "(?P<f>[0-9]{1,9})",
    "p": "(?P<p>[AaPp][Mm])",
    "z": _ZONE,
    "a": "[A-Za-z]{3,9}",
    "A": "[A-Za-z]{3,9}",
    **{letter: f"(?P<{'H' if letter == 'I' else letter}>[0-9]{{1,2}})" for letter in "mdHIMS"},
    "%": "%",
}


@dataclass(frozen=True, slots=True)
class TimeForm:
    """One form of text: a name or strptime format, and the regular expression of its parts."""

    name: str
    pattern: str
    groups: tuple[str, ...]
    """Letters of the groups, as in strptime; s, ms and us count from 1970; Z, o, h and n are the zone's parts."""

    @property
    def by_template(self) -> bool:
        """Whether the places of the groups follow from the text with 0 for every digit."""
        return not re.search(r"[0-9]", re.sub(r"\[0-9\]|\[[^\]]*\]|\{[0-9,]+\}", "", self.pattern))

    def spans(self, template: str) -> dict[str, tuple[int, int]] | None:
        """Returns start and length of each group in texts that have 0 for every digit; None if they lack the form."""
        found = re.fullmatch(self.pattern.removeprefix("^").removesuffix(r"\z"), template)
        return found and {group: (start, end - start) for group in self.groups for start, end in [found.span(group)]}

    def pattern_of(self, group: str | None = None) -> str:
        """Returns the pattern with at most one group, without names, which every engine understands."""
        return re.sub(r"\?P<(\w+)>", lambda found: "" if found[1] == group else "?:", self.pattern)


@cache
def time_form(time_format: str) -> TimeForm:
    """Returns the form of a name in FORMS or of a strptime format; ValueError for other text."""
    inner = _NAMED.get(time_format) or _compiled(time_format)
    groups = tuple(re.findall(r"\?P<(\w+)>", inner))
    repeated = sorted({group for group in groups if groups.count(group) > 1})
    if repeated:
        raise ValueError(f"%{repeated[0]} is given twice")
    return TimeForm(time_format, rf"^[ \t]*{inner}[ \t]*\z", groups)


def check_time_format(time_format: str) -> str:
    """Returns a name or format that `time_form` reads; ValueError for other text."""
    time_form(time_format)
    return time_format


def _compiled(time_format: str) -> str:
    """Returns the regular expression of a strptime format."""
    if "%" not in time_format:
        raise ValueError(f"allowed: {', '.join(FORMS)}, or a strptime format such as %d.%m.%Y %H:%M")
    for short, full in _EXPANDED.items():
        time_format = time_format.replace(short, full)
    parts = re.findall(r"%(.?)|(\s+)|([^%\s]+)", time_format)
    pieces = []
    for index, (letter, space, literal) in enumerate(parts):
        if space or literal:
            pieces.append(r"[ \t]*" if space else _escaped(literal))
            continue
        if letter not in _DIRECTIVES:
            raise ValueError(f"%{letter} is not supported. Allowed: %{', %'.join(_DIRECTIVES)}")
        near = [parts[i][0] for i in (index - 1, index + 1) if 0 <= i < len(parts)]
        adjacent = any(other in "YymdHIMS" for other in near if other)
        pieces.append(_DIRECTIVES[letter].replace("{1,2}", "{2}") if adjacent else _DIRECTIVES[letter])
    return "".join(pieces)


def _escaped(literal: str) -> str:
    """Escapes punctuation only: engines differ in what a backslash before other characters means."""
    return re.sub(r"([\\.^$|?*+()\[\]{}/-])", r"\\\1", literal)
