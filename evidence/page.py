"""A page of `docs/results`: hand-written text, and generated tables between markers."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from evidence.data import Evidence
from fieldwise.core.errors import RunError

_MADE: Final = re.compile(r"<!-- (?P<kind>table|picture) (?P<name>[a-z0-9-]+) -->\n.*?<!-- end -->", re.DOTALL)
_CODE: Final = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)
_FIGURE: Final = re.compile(r"(?<![\d.])0?\.\d{4}(?!\d)")
OPEN: Final = "*Not measured yet.*"


@dataclass(frozen=True)
class Item:
    """A table or figure, and the names of its data in the order of its arguments."""

    needs: tuple[str, ...]
    make: Callable[..., Any]
    """Returns the lines of a table from evidence, or draws evidence into a figure."""


@dataclass(frozen=True)
class Page:
    """The generated items of one page."""

    tables: dict[str, Item]
    pictures: dict[str, Item] = field(default_factory=dict)

    @property
    def needs(self) -> list[str]:
        """The names of all data of the page."""
        items = [*self.tables.values(), *self.pictures.values()]
        return list(dict.fromkeys(name for item in items for name in item.needs))


def filled(text: str, page: Page, data: Mapping[str, Evidence]) -> str:
    """Returns the page's text with all tables and figures regenerated; items without data are marked as such."""
    named = sorted((match["kind"], match["name"]) for match in _MADE.finditer(text))
    known = sorted([("table", name) for name in page.tables] + [("picture", name) for name in page.pictures])
    if named != known:
        shown = [", ".join(" ".join(one) for one in both) for both in (named, known)]
        raise RunError(f"The page has {shown[0]}. Allowed, once each: {shown[1]}. Fix its markers.")

    def made(match: re.Match[str]) -> str:
        kind, name = match["kind"], match["name"]
        item = (page.tables if kind == "table" else page.pictures)[name]
        lines = [OPEN]
        if all(need in data for need in item.needs):
            evidence = (data[need] for need in item.needs)
            lines = item.make(*evidence) if kind == "table" else [f"![{name}](images/{name}.png)"]
        return "\n".join([f"<!-- {kind} {name} -->", *lines, "<!-- end -->"])

    return _MADE.sub(made, text)


def with_tables(text: str, lines: Callable[[str], Sequence[str]]) -> str:
    """Returns the page's text with the lines of each table or picture, made from its name."""

    def made(match: re.Match[str]) -> str:
        return "\n".join([f"<!-- {match['kind']} {match['name']} -->", *lines(match["name"]), "<!-- end -->"])

    return _MADE.sub(made, text)


def unfounded(text: str) -> list[str]:
    """Returns the numbers with four decimals in a page's text that are in none of its tables."""
    rows = "\n".join(line for line in text.splitlines() if line.startswith("|"))
    words = "\n".join(line for line in _CODE.sub("", text).splitlines() if not line.startswith("|"))
    founded = {figure.lstrip("0") for figure in _FIGURE.findall(rows)}
    return [figure for figure in _FIGURE.findall(words) if figure.lstrip("0") not in founded]
