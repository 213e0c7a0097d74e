"""Encodes single rows, as an online service gets them; values that were seen before need no conversion to Arrow."""

from collections.abc import Sequence
from itertools import groupby
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fieldwise.data.encoder import Encoder
from fieldwise.data.field_encoder import FieldEncoder

_PLAIN: Final = frozenset({str, int, float, bool, type(None)})
_MOST: Final = 2**16
"""Values remembered per column."""
_LONGEST: Final = 256
"""Characters of a text that is remembered."""


class RowEncoder:
    """Encodes one row at a time exactly as `Encoder.encode` does."""

    def __init__(self, encoder: Encoder) -> None:
        self._columns: list[_Column] = []
        self._places = encoder.schema.places if encoder.fields else 0
        self._has_single = any(not field.several for field in encoder.fields)
        start = 0
        # only adjacent fields, because only adjacent tiers are looked up together
        for name, fields in groupby(encoder.fields, lambda field: field.rule.column or field.name):
            self._columns.append(_Column(name, list(fields), start))
            start = self._columns[-1].places.stop

    def __call__(self, row: Any) -> NDArray[np.int32] | None:
        """Returns the ids (1, places) of a dict of text, numbers, booleans and None; None for any other rows."""
        if not isinstance(row, dict) or not self._has_single:
            return None
        found = np.empty((1, self._places), np.int32)
        for column in self._columns:
            value = row.get(column.name, row)
            if type(value) not in _PLAIN:
                return None
            found[0, column.places] = column.ids(value)
        return found


class _Column:
    """The adjacent fields of one raw column, and the ids of the values seen."""

    def __init__(self, name: str, fields: Sequence[FieldEncoder], start: int) -> None:
        self.name = name
        self.places = slice(start, start + sum(field.length for field in fields))
        """Their places in a row of ids."""
        self._encoder = Encoder(fields)
        self._seen: dict[tuple[type, Any], NDArray[np.int32]] = {}

    def ids(self, value: Any) -> NDArray[np.int32]:
        """Returns the ids of a value."""
        key = type(value), value
        found = self._seen.get(key)
        if found is None or (value == 0 and type(value) is float):  # 0.0 equals -0.0
            found = self._encoder.encode({self.name: [value]})[0]
            if len(self._seen) >= _MOST:
                self._seen.clear()
            if not isinstance(value, str) or len(value) <= _LONGEST:
                self._seen[key] = found
        return found
