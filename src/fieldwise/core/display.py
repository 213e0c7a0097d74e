"""How values show themselves: as text on a console, as a table in a notebook."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

Cells = Sequence[object]
_TEXT_ROWS: Final = 30
"""Rows of a table shown as text; the rest is counted."""
_HTML_ROWS: Final = 200


@dataclass(frozen=True, slots=True)
class View:
    """A title, further lines, and at most one table."""

    title: str
    lines: tuple[str, ...] = ()
    heads: tuple[str, ...] = ()
    rows: tuple[Cells, ...] = ()

    def text(self) -> str:
        """The view as plain text, columns aligned."""
        cells = [[printable(cell) for cell in row] for row in (self.heads, *self.rows[:_TEXT_ROWS])]
        sizes = [max(map(len, column)) for column in zip(*cells, strict=True)]
        table = ["  ".join(_aligned(row, sizes)).rstrip() for row in cells if row]
        return "\n".join([*map(printable, (self.title, *self.lines)), *table, *_left(self.rows, _TEXT_ROWS)])

    def html(self) -> str:
        """The view as HTML, in which names are text, never markup."""
        lines = [f"<strong>{_safe(self.title)}</strong>", *map(_safe, self.lines)]
        parts = [f"<div>{'<br>'.join(lines)}</div>"]
        if self.heads:
            body = "".join(f"<tr>{_tags('td', row)}</tr>" for row in self.rows[:_HTML_ROWS])
            parts.append(f"<table><thead><tr>{_tags('th', self.heads)}</tr></thead><tbody>{body}</tbody></table>")
        parts += [f"<div>{line}</div>" for line in _left(self.rows, _HTML_ROWS)]
        return f"<div>{''.join(parts)}</div>"


class Shown(ABC):
    """A value that shows itself by its view; `repr` is the view as text."""

    __slots__ = ()

    @abstractmethod
    def view(self) -> View:
        """What a console or a notebook shows."""

    def __repr__(self) -> str:
        return self.view().text()

    def __str__(self) -> str:
        return self.view().text()

    def _repr_html_(self) -> str:
        """For notebooks."""
        return self.view().html()


def printable(text: object) -> str:
    """The text with a space for each control character."""
    return "".join(letter if letter.isprintable() else " " for letter in str(text))


def share(part: float, whole: float) -> str:
    """`part of whole (percent)`."""
    return f"{part:,} of {whole:,} ({part / whole:.1%})" if whole else f"{part:,} of {whole:,}"


def _aligned(row: Sequence[str], sizes: Sequence[int]) -> Iterable[str]:
    """The first cell to the left, the others to the right."""
    return (
        cell.ljust(size) if i == 0 else cell.rjust(size) for i, (cell, size) in enumerate(zip(row, sizes, strict=True))
    )


def _left(rows: Sequence[Cells], most: int) -> list[str]:
    return [f"... and {len(rows) - most:,} more"] if len(rows) > most else []


def _tags(tag: str, cells: Cells) -> str:
    return "".join(f"<{tag}>{_safe(cell)}</{tag}>" for cell in cells)


def _safe(text: object) -> str:
    return escape(printable(text))
