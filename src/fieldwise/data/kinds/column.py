"""One raw column of the sampled training rows: its distinct values, their counts, and the clicks."""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fieldwise.data.kinds.evidence import Predicted, predict
from fieldwise.data.rules import Rule, is_list


@dataclass(frozen=True)
class Column:
    """Values of one column in sampled training rows, in the order of the rows."""

    name: str
    values: pa.Array
    """Distinct values without null and empty text."""
    codes: NDArray[np.int64]
    """(rows,): the index in `values` of each row; -1 for null."""
    clicks: NDArray[np.float64]
    """(rows,): 0 or 1."""
    is_text_file: bool = False
    """Whether the file has no types, so that text may be a number."""

    @classmethod
    def of(cls, name: str, column: pa.ChunkedArray, clicks: NDArray[np.float64], is_text_file: bool) -> "Column":
        """Returns the column with its values counted once; a list counts with the first of its values."""
        array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        if is_list(array.type):
            array = Rule().lists(array)  # at least one entry each
            array = pc.list_element(array, 0)
        array = array.dictionary_decode() if pa.types.is_dictionary(array.type) else array
        encoded = array.dictionary_encode()  # only the values that occur
        codes = pc.fill_null(encoded.indices.cast(pa.int64()), -1).to_numpy(zero_copy_only=False)
        return cls(name, encoded.dictionary, codes, clicks, is_text_file).without(_empty(encoded.dictionary))

    def without(self, values: NDArray[np.bool_]) -> "Column":
        """Returns the column with null for some of its distinct values."""
        kept = np.flatnonzero(~values)
        places = np.full(len(values) + 1, -1)  # the last is null
        places[kept] = np.arange(len(kept))
        return replace(self, values=self.values.take(pa.array(kept)), codes=places[self.codes])

    @property
    def kind(self) -> pa.DataType:
        """Arrow type of the values."""
        return self.values.type

    @property
    def is_text(self) -> bool:
        """Whether the values are text."""
        return bool(pa.types.is_string(self.kind) or pa.types.is_large_string(self.kind))

    @cached_property
    def counts(self) -> NDArray[np.int64]:
        """Rows of each value."""
        return np.bincount(self.codes[self.codes >= 0], minlength=len(self.values))

    @cached_property
    def known(self) -> int:
        """Rows that have a value."""
        return int((self.codes >= 0).sum())

    @property
    def distinct(self) -> int:
        """Number of distinct values."""
        return len(self.values)

    @cached_property
    def groups(self) -> NDArray[np.int64]:
        """(rows,): a group per value, from 0; null is the last group."""
        return np.where(self.codes < 0, self.distinct, self.codes)

    @cached_property
    def as_category(self) -> Predicted:
        """What the values predict, each on its own."""
        return predict(self.groups, self.clicks)

    def examples(self, count: int = 3) -> list[str]:
        """Returns a few of the most frequent values as text."""
        order = np.argsort(-self.counts, kind="stable")[:count]
        return [str(value) for value in self.values.take(pa.array(order)).to_pylist()]


def _empty(values: pa.Array) -> NDArray[np.bool_]:
    """Returns which values are empty text or NaN."""
    if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
        found = pc.equal(pc.utf8_trim_whitespace(values), "")
    elif pa.types.is_floating(values.type):
        found = pc.is_nan(values)
    else:
        return np.zeros(len(values), dtype=bool)
    empty: NDArray[np.bool_] = pc.fill_null(found, True).to_numpy(zero_copy_only=False)
    return empty
