"""Vocabularies: the values of a field and their ids."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from fieldwise.core.files import replacing
from fieldwise.core.schema import UNKNOWN
from fieldwise.data.convert import (
    TextForm,
    alternative_text,
    integers,
    normalize_times,
    parse_numbers,
    text_form,
    timestamps,
    to_text,
)
from fieldwise.data.positions import Positions, positions
from fieldwise.data.vocabulary_file import read_columns, write_compact


@dataclass(frozen=True)
class Vocabulary:
    """Known values, most frequent first; ids count from 1 in this order. Null is a value too."""

    values: pa.Array
    counts: pa.Array
    column_form: TextForm | None = None
    """Form of all texts of the column, if these are only some of its values; by default the form of these."""

    @property
    def cardinality(self) -> int:
        """Number of ids: known values plus `unknown`."""
        return len(self.values) + 1

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return int(self.values.nbytes + self.counts.nbytes)

    def encode(self, column: pa.Array, time_format: str | None = None) -> NDArray[np.int32]:
        """Returns the ids (rows,) of a rule's output; unseen values become `unknown`.

        Values of another type are converted to the vocabulary's type: text to numbers or times, times to dates, 17.0
        to 17. A text vocabulary is searched for every spelling of a value: 17 also as 17.0, times in
        `time_format` or year-first. Different texts stay different (7 and 07), unless the whole vocabulary has one
        form: integers, integers with .0, or true and false.
        """
        known, null = self.values, np.asarray(column.is_null())
        if pa.types.is_null(column.type):
            column = column.cast(known.type)
        if pa.types.is_floating(known.type):
            found, valid, bad = parse_numbers(column)
            column, null = pa.array(found, mask=~valid), ~valid & ~bad
        elif pa.types.is_integer(known.type):
            column = integers(column)
        elif is_timestamp(known.type) or is_timestamp(column.type):
            column, known = timestamps(column, time_format), timestamps(known, time_format)
        elif pa.types.is_string(known.type):
            return np.where(null, self._null_id, self._text_ids(column))
        elif column.type != known.type:
            column, known = to_text(column), to_text(known)
        places = self._positions(column) if known is self.values else positions(column, known)
        return np.where(null, self._null_id, places + 1)

    def _text_ids(self, column: pa.Array) -> NDArray[np.int32]:
        ids = self._positions(to_text(column)) + 1
        rest = np.flatnonzero((ids == UNKNOWN) & np.asarray(column.is_valid()))
        if len(rest):
            column = column.take(pa.array(rest))
            if self._form == "boolean" and pa.types.is_string(column.type):
                ids[rest] = positions(pc.utf8_lower(column), pc.utf8_lower(self.values)) + 1
            else:
                other = alternative_text(column, self._form)
                if other.null_count < len(other):
                    ids[rest] = self._positions(other) + 1
        return ids

    @cached_property
    def _form(self) -> TextForm:
        return self.column_form or text_form(self.values)

    def texts(self, column: pa.Array, time_format: str | None = None) -> pa.Array:
        """Converts values to text; known values get the vocabulary's spelling, whatever their type or form."""
        ids = self.encode(column, time_format)
        known = self.values.cast(pa.string()).take(pa.array(ids - 1, mask=ids == UNKNOWN))
        return pc.coalesce(known, to_text(column))

    @cached_property
    def _positions(self) -> Positions:
        return Positions(self.values)

    @cached_property
    def _null_id(self) -> int:
        return int(np.flatnonzero(self.values.is_null())[0]) + 1 if self.values.null_count else UNKNOWN

    def part(self, chosen: NDArray[np.bool_]) -> "Vocabulary":
        """Returns the chosen values, in order; they are found by every spelling by which the column's values are."""
        form = self._form if pa.types.is_string(self.values.type) else None
        return Vocabulary(self.values.filter(pa.array(chosen)), self.counts.filter(pa.array(chosen)), form)

    def save(self, path: Path, counts: bool = True) -> None:
        """Writes Parquet with the columns value and count; the first row has id 1. Without counts, it is compact."""
        with replacing(path) as work:
            if counts:
                pq.write_table(pa.table({"value": self.values, "count": self.counts}), work)
            else:
                write_compact(self.values, work)

    @classmethod
    def load(cls, path: Path, rows: int | None = None) -> "Vocabulary":
        """Reads what `save` wrote; ValueError if the file is not a vocabulary, or its length is not `rows`."""
        values, counts = read_columns(path, rows)
        # older folders contain NaN, and times with zones or other units
        if pa.types.is_temporal(values.type):
            values = normalize_times(values)
        elif pa.types.is_floating(values.type):
            values = values.cast(pa.float64())
            values = pc.if_else(pc.is_nan(values), pa.scalar(None, values.type), values)
        elif pa.types.is_integer(values.type):
            values = integers(values)
        return cls(values, counts)


def is_timestamp(kind: pa.DataType) -> bool:
    """Whether values are times with a date, or dates."""
    return bool(pa.types.is_timestamp(kind) or pa.types.is_date(kind))


class Counter:
    """Counts the values of one field, batch by batch."""

    def __init__(self) -> None:
        self._parts: list[pa.Table] = []
        self._merged = False
        self.nbytes = 0
        """Size in bytes."""

    def add(self, column: pa.Array, counts: pa.Array | None = None) -> None:
        """Adds a batch; `counts` are the counts of its values, 1 each by default."""
        if counts is None:
            found = pc.value_counts(column)
            column, counts = found.field("values"), found.field("counts")
        self._parts.append(pa.table({"value": column, "count": counts.cast(pa.int64())}))
        self._merged = False
        self.nbytes += self._parts[-1].nbytes
        if len(self._parts) >= 32:  # memory is bounded by the distinct values, not by the rows
            self.merge()

    def merge(self) -> None:
        """Merges equal values to free memory."""
        if not self._merged:
            self._parts, self._merged = [_merged(self._parts)], True
            self.nbytes = self._parts[0].nbytes

    @property
    def parts(self) -> int:
        """Number of parts that are not merged yet."""
        return len(self._parts)

    def table(self) -> pa.Table:
        """Returns distinct values and their counts, unordered."""
        self.merge()
        return self._parts[0]

    def vocabulary(self, min_count: int, exclude: int | None = None) -> Vocabulary:
        """Returns values with at least `min_count` rows, by descending count, then by value (text by UTF-8 bytes).

        Omits the value `exclude`.
        """
        table = self.table()
        table = table.filter(pc.greater_equal(table["count"], min_count))
        if pa.types.is_uint64(table["value"].type):
            table = table.set_column(0, "value", integers(table["value"].combine_chunks()))
        if exclude is not None:
            table = table.filter(pc.fill_null(pc.not_equal(table["value"], exclude), True))
        table = table.sort_by([("count", "descending"), ("value", "ascending")]).combine_chunks()
        return Vocabulary(table["value"].combine_chunks(), table["count"].combine_chunks())


def _merged(tables: list[pa.Table]) -> pa.Table:
    """Returns the distinct values of tables of values and counts, and the sums of their counts."""
    parts = pa.concat_tables(tables)
    threads = len(parts) > 100_000  # for few values, starting threads takes longer
    merged = parts.group_by("value", use_threads=threads).aggregate([("count", "sum")])
    return merged.rename_columns({"count_sum": "count"}).select(["value", "count"])
