"""Encodes raw rows to ids with only the dataset folder: no engine, and the same ids as in the dataset."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pydantic import Field as Bounded
from pydantic import TypeAdapter, ValidationError

from fieldwise.core.errors import DataError
from fieldwise.core.files import write_json
from fieldwise.core.plain_files import read_json
from fieldwise.core.records import Record, first_problem
from fieldwise.core.schema import PADDING, UNKNOWN, Field, Schema
from fieldwise.data.dataframes import is_scalar, to_arrow
from fieldwise.data.rules import Rule, is_list
from fieldwise.data.vocabulary import Vocabulary

RULES: Final = "encoding.json"


class _Entry(Record):
    """The entry of one field in `encoding.json`."""

    name: str
    rule: Rule
    length: int = Bounded(ge=1, le=1000)
    several: bool


_ENTRIES: Final = TypeAdapter(list[_Entry])


@dataclass(frozen=True, slots=True)
class FieldEncoder:
    """The rule and vocabulary of one field, and its maximum number of values per row."""

    name: str
    rule: Rule
    vocabulary: Vocabulary
    length: int = 1
    several: bool = False

    def check_type(self, kind: pa.DataType) -> None:
        """Refuses a column whose values can be no values of the field: structs, bytes, lists where one is expected."""
        inner = kind.value_type if pa.types.is_dictionary(kind) else kind
        inner = inner.value_type if self.several and is_list(inner) else inner
        if pa.types.is_nested(inner) or pa.types.is_binary(inner) or pa.types.is_large_binary(inner):
            lists = ", and lists of them" if self.several else ""
            raise DataError(
                f"Column '{self.rule.column or self.name}' holds {kind}. Allowed: text, numbers and times{lists}. "
                "Give the column as the model was trained with it."
            )

    def ids(self, column: pa.Array) -> NDArray[np.int32]:
        """Returns the ids of raw values, (rows, length); encodes each value of a dictionary array once."""
        if pa.types.is_dictionary(column.type):
            values = column.dictionary
            found = self.ids(pa.concat_arrays([values, pa.nulls(1, values.type)]))
            places: NDArray[np.int64] = pc.fill_null(column.indices, len(values)).to_numpy(zero_copy_only=False)
            return found[places]
        lists = self.rule.lists(column) if self.several else None
        if lists is None:
            found = self.vocabulary.encode(self.rule.apply(column))[:, None]
            return found if self.length == 1 else np.pad(found, ((0, 0), (0, self.length - 1)), constant_values=PADDING)
        lists = pc.list_slice(lists, 0, self.length)
        rows = np.asarray(pc.list_parent_indices(lists))
        lengths = np.asarray(pc.list_value_length(lists))
        starts = np.cumsum(lengths) - lengths
        found = np.full((len(lists), self.length), PADDING, dtype=np.int32)
        found[rows, np.arange(len(rows)) - starts[rows]] = self.vocabulary.encode(self.rule.apply(lists.flatten()))
        return found


class Encoder:
    """Encodes raw rows exactly as `prepare` encoded the dataset."""

    def __init__(self, fields: Sequence[FieldEncoder]) -> None:
        self.fields = tuple(fields)

    @classmethod
    def open(cls, folder: Path | str, schema: Schema | None = None) -> "Encoder":
        """Reads the rules and vocabularies of a dataset folder; checks them against the schema if given."""
        folder = Path(folder)
        try:
            entries = _ENTRIES.validate_python(read_json(folder / RULES))
            if schema is not None and [(e.name, e.length) for e in entries] != [
                (f.name, f.length) for f in schema.fields
            ]:
                raise DataError(f"'{folder}': {RULES} is not that of the fields. Create the folder again.")
            rows = [None] * len(entries) if schema is None else [field.cardinality - 1 for field in schema.fields]
            fields = [
                FieldEncoder(e.name, e.rule, Vocabulary.load(folder / vocabulary_file(i), rows[i]), e.length, e.several)
                for i, e in enumerate(entries)
            ]
        except (OSError, ValueError, pa.ArrowException) as error:
            why = first_problem(error) if isinstance(error, ValidationError) else " ".join(str(error).split())[:300]
            raise DataError(
                f"'{folder}' cannot encode rows ({why}). Give a dataset folder, or create it again."
            ) from error
        return cls(fields)

    def save(self, folder: Path, progress: Callable[[str, int, int | None], None] = lambda *_: None) -> None:
        """Writes rules as JSON and vocabularies as Parquet; `open` reads them back."""
        entries = [
            {"name": f.name, "rule": f.rule.values(), "length": f.length, "several": f.several} for f in self.fields
        ]
        write_json(folder / RULES, entries)
        for index, field in enumerate(self.fields):
            progress("write vocabularies", index, len(self.fields))
            field.vocabulary.save(folder / vocabulary_file(index))

    @property
    def files(self) -> list[str]:
        """Names of the files that `save` writes."""
        return [RULES, *(vocabulary_file(index) for index in range(len(self.fields)))]

    @cached_property
    def schema(self) -> Schema:
        """Fields, cardinalities and lengths."""
        return Schema(tuple(Field(f.name, f.vocabulary.cardinality, f.length) for f in self.fields))

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the raw columns that rows must have."""
        return tuple(dict.fromkeys(f.rule.column or f.name for f in self.fields))

    def table(self, rows: Any) -> pa.Table:
        """Converts raw rows to an Arrow table and checks its columns.

        Accepts a dict of columns, a list of dicts, one row as a dict, or any object with an Arrow stream. A dict is
        one row if each of its columns for a single-valued field is a single value.
        """
        if isinstance(rows, Mapping) and self._is_row(rows):
            rows = [rows]
        elif isinstance(rows, list | tuple) and not rows:
            rows = dict.fromkeys(self.columns, ())
        table = to_arrow(rows)
        known = set(table.column_names)
        missing = [name for name in self.columns if name not in known]
        if missing:
            raise DataError(
                f"Rows lack the columns {', '.join(missing)}. Allowed: {', '.join(self.columns)}. Add them."
            )
        for field in self.fields:
            field.check_type(table.schema.field(field.rule.column or field.name).type)
        return table

    def _is_row(self, rows: Mapping[str, Any]) -> bool:
        """Returns whether a dict is one row; refuses one that mixes single values and columns."""
        names = [f.rule.column or f.name for f in self.fields if not f.several]
        found = {is_scalar(rows[name]): name for name in names if name in rows}
        if len(found) == 2:
            raise DataError(
                f"A dict of rows holds one value in '{found[True]}' and several in '{found[False]}'. Allowed: a list "
                "of values in every column, or one value in every column. Make them agree."
            )
        return found.keys() == {True}

    def encode(self, rows: Any) -> NDArray[np.int32]:
        """Returns the ids (rows, places) of raw rows; accepts the same inputs as `table`.

        Unseen values become `unknown`, and so does text in a numeric field.
        """
        table = self.table(rows)
        return self.ids([table[f.rule.column or f.name].combine_chunks() for f in self.fields])

    def ids(self, columns: Sequence[pa.Array]) -> NDArray[np.int32]:
        """Returns the ids (rows, places) of raw columns, one per field."""
        parts = [field.ids(column) for field, column in zip(self.fields, columns, strict=True)]
        return np.concatenate(parts, axis=1) if parts else np.empty((0, 0), np.int32)

    def unknown(self, ids: NDArray[np.int32]) -> NDArray[np.bool_]:
        """Returns a mask (rows, F) of the fields that have an unknown value."""
        starts = np.cumsum([0, *(f.length for f in self.fields[:-1])])
        return np.logical_or.reduceat(ids == UNKNOWN, starts, axis=1)


def vocabulary_file(index: int) -> str:
    """Returns the file name of a field's vocabulary; numbered, since field names may contain any character."""
    return f"vocabulary-{index:03d}.parquet"
