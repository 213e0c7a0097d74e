"""Columns of ibis tables."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fieldwise.core.errors import DataError
from fieldwise.core.registry import unknown
from fieldwise.data.engines.session import ROW

if TYPE_CHECKING:
    import ibis.expr.types as ir


def columns_of(table: "ir.Table", names: Sequence[str], setting: str) -> list[Any]:
    """Returns columns by name; refuses an unknown name of this setting."""
    known = set(table.columns)
    for name in names:
        if name not in known:
            raise DataError(unknown(setting, name, known - {ROW}))
    return [table[name] for name in names]


def as_number(column: Any) -> Any:
    """Returns an expression that sorts a column as `rules.numbers_of` does."""
    ordered = column.type().is_numeric() or column.type().is_temporal()
    return column if ordered else column.cast("string").strip().try_cast("float64")
