"""Values of raw columns as ibis expressions."""

from collections.abc import Sequence
from typing import Any

import ibis
import ibis.expr.types as ir

from fieldwise.data.cells import DECIMAL_COMMA, Cells
from fieldwise.data.engines.columns import column, places_of
from fieldwise.data.source import Files


def columns_of(table: ir.Table, known: Sequence[str], names: Sequence[str], setting: str) -> list[Any]:
    """Returns columns by name, of all `known` ones in order; refuses an unknown name of this setting."""
    return [table[column(place)] for place in places_of(known, names, setting)]


def cleaned(text: Any, cells: Cells) -> Any:
    """Returns an expression that reads cells as `Cells.clean` does."""
    if cells.unchanged or not text.type().is_string():
        return text
    if cells.trim:
        text = text.re_replace(r"^[ \t]+|[ \t]+$", "").nullif("")
    if cells.nulls:
        text = ibis.ifelse(text.isin(cells.nulls), ibis.null("string"), text)
    if cells.decimal == ",":  # engines differ in how a replacement names groups
        text = ibis.ifelse(text.re_search(DECIMAL_COMMA), text.replace(",", "."), text)
    return text


def over_threshold(label: Any, files: Files) -> Any:
    """Returns an expression that is 1 where the label is beyond the threshold, null where it is no number."""
    number = as_number(cleaned(label, files.cells))
    assert files.threshold is not None
    return ibis.ifelse(number.isnull(), ibis.null("string"), ibis.ifelse(files.threshold.holds(number), "1", "0"))


def as_number(column: Any) -> Any:
    """Returns an expression that sorts a column as `rules.numbers_of` does."""
    ordered = column.type().is_numeric() or column.type().is_temporal()
    return column if ordered else column.cast("string").strip().try_cast("float64")
