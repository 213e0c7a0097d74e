"""Counts text that is no time, in fields that read times."""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fieldwise.data.field_encoder import Encoded, FieldEncoder
from fieldwise.data.times import check_unparsed

_SHOWN: Final = 3
"""Texts shown in a message."""


class UnparsedTexts(NamedTuple):
    """Texts that are no times, per field."""

    bad: list[int]
    texts: list[int]
    """Number of texts, times included."""
    shown: list[list[str]]
    """The first ones."""


class Unparsed:
    """Counts of the texts that are no times, per field."""

    def __init__(self, fields: Sequence[FieldEncoder]) -> None:
        self._fields = fields
        self.counts = [0] * len(self._fields)
        """Number of texts that are no times."""
        self._texts = [0] * len(self._fields)
        self._shown: list[list[str]] = [[] for _ in self._fields]

    def add(
        self, columns: Sequence[pa.Array], encoded: Sequence[Encoded], chosen: NDArray[np.bool_] | bool = True
    ) -> None:
        """Adds the chosen rows of all fields."""
        for index, (field, column, part) in enumerate(zip(self._fields, columns, encoded, strict=True)):
            if field.reads_times:
                bad = np.flatnonzero(part.unparsed & chosen)
                self.counts[index] += len(bad)
                self._texts[index] += int((np.asarray(column.is_valid()) & chosen).sum())
                self._shown[index] += [str(column[int(row)].as_py()) for row in bad[: _SHOWN - len(self._shown[index])]]

    @property
    def found(self) -> UnparsedTexts:
        """The counts, without the vocabularies of the fields."""
        return UnparsedTexts(self.counts, self._texts, self._shown)

    def join(self, other: UnparsedTexts) -> None:
        """Adds the texts of further rows."""
        for index, shown in enumerate(self._shown):
            self.counts[index] += other.bad[index]
            self._texts[index] += other.texts[index]
            shown += other.shown[index][: _SHOWN - len(shown)]

    def check(self, at_least: int = 1) -> None:
        """Refuses more than a small fraction of texts that are no times; only once there are `at_least` texts."""
        for field, bad, texts, shown in zip(self._fields, self.counts, self._texts, self._shown, strict=True):
            if texts >= at_least:
                check_unparsed(field.rule.column or field.name, bad, texts, shown, field.rule.time_format)
