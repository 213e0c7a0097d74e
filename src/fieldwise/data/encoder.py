"""Encodes raw rows to ids with only the dataset folder: no engine, and the same ids as in the dataset."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import Field as Bounded
from pydantic import TypeAdapter, ValidationError, model_validator

from fieldwise.core.errors import DataError
from fieldwise.core.files import write_json
from fieldwise.core.plain_files import read_json
from fieldwise.core.records import Record, first_problem
from fieldwise.core.schema import UNKNOWN, Field, Schema, Tier
from fieldwise.data.cells import Cells
from fieldwise.data.convert import TextForm
from fieldwise.data.dataframes import is_scalar, to_arrow
from fieldwise.data.field_encoder import Encoded, FieldEncoder, TimeType, tier_runs
from fieldwise.data.rules import Rule
from fieldwise.data.unparsed import Unparsed
from fieldwise.data.vocabulary import Vocabulary

RULES: Final = "encoding.json"


class _Entry(Record):
    """The entry of one field in `encoding.json`."""

    name: str
    rule: Rule
    length: int = Bounded(ge=1, le=1000)
    several: bool
    times: TimeType | None = None
    cells: Cells = Cells()
    tier: Tier | None = None
    form: TextForm | None = None
    """Form of the texts of all tiers."""

    @model_validator(mode="after")
    def _has_one_value(self) -> "_Entry":
        if self.tier and (self.several or self.length > 1 or not self.rule.keeps_values):
            raise ValueError("a tier is of a category with one value per row")
        return self

    def encoder(self, vocabulary: Vocabulary) -> FieldEncoder:
        vocabulary = replace(vocabulary, column_form=self.form)
        return FieldEncoder(
            self.name, self.rule, vocabulary, self.length, self.several, self.times, self.cells, self.tier
        )


_ENTRIES: Final = TypeAdapter(list[_Entry])


class Encoder:
    """Encodes raw rows exactly as `prepare` encoded the dataset."""

    def __init__(self, fields: Sequence[FieldEncoder]) -> None:
        self.fields = tuple(fields)

    def __repr__(self) -> str:
        return f"Encoder({len(self.fields)} fields: {', '.join(f.name for f in self.fields):.200})"

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
                entry.encoder(Vocabulary.load(folder / vocabulary_file(i), rows[i])) for i, entry in enumerate(entries)
            ]
        except (OSError, ValueError, pa.ArrowException) as error:
            why = first_problem(error) if isinstance(error, ValidationError) else " ".join(str(error).split())[:300]
            raise DataError(
                f"'{folder}' cannot encode rows ({why}). Give a dataset folder, or create it again."
            ) from error
        return cls(fields)

    def save(
        self,
        folder: Path,
        progress: Callable[[str, int, int | None], None] = lambda *_: None,
        counts: bool = True,
    ) -> None:
        """Writes rules as JSON and vocabularies as Parquet, with or without counts; `open` reads them back."""
        entries = [
            {
                "name": f.name,
                "rule": f.rule.values(),
                "length": f.length,
                "several": f.several,
                "times": f.times,
                "cells": f.cells.model_dump(mode="json"),
                "tier": f.tier,
                "form": f.vocabulary.column_form,
            }
            for f in self.fields
        ]
        write_json(folder / RULES, entries)
        for index, field in enumerate(self.fields):
            progress("write vocabularies", index, len(self.fields))
            field.vocabulary.save(folder / vocabulary_file(index), counts)

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

    def encode(self, rows: Any, unparsed: Unparsed | None = None) -> NDArray[np.int32]:
        """Returns the ids (rows, places) of raw rows; accepts the same inputs as `table`.

        Unseen values become `unknown`, and so does text in a numeric field. Text that is no time is refused in a field
        that reads times, above a small fraction of these rows; with `unparsed`, it is counted there instead.
        """
        counts = Unparsed(self.fields) if unparsed is None else unparsed
        found = self.encode_table(self.table(rows), counts)
        if unparsed is None:
            counts.check()
        return found

    def encode_table(self, table: pa.Table, unparsed: Unparsed) -> NDArray[np.int32]:
        """Returns the ids (rows, places) of rows that `table` returned, and counts text that is no time."""
        return joined(self.encoded([_whole(table[f.rule.column or f.name]) for f in self.fields], unparsed))

    def encoded(self, columns: Sequence[pa.Array], unparsed: Unparsed) -> list[Encoded]:
        """Encodes raw columns, one per field, and counts text that is no time."""
        found: list[Encoded] = []
        for index, (field, column) in enumerate(zip(self.fields, columns, strict=True)):
            if index in self._runs:
                whole, count = self._runs[index]
                all_tiers, before = whole.encode(column), 0
                for tier in self.fields[index : index + count]:
                    last = before + tier.vocabulary.cardinality - 1
                    own = (all_tiers.ids > before) & (all_tiers.ids <= last)
                    found.append(all_tiers._replace(ids=np.where(own, all_tiers.ids - before, UNKNOWN)))
                    before = last
            elif index == len(found):
                found.append(field.encode(column))
        unparsed.add(columns, found)
        return found

    @cached_property
    def _runs(self) -> dict[int, tuple[FieldEncoder, int]]:
        """Tiers that are looked up together: quicker, and no value is found in two by another spelling."""
        return tier_runs(self.fields)

    def untiered(self) -> "Encoder":
        """Returns the encoder with tiers of a column that follow each other as one field."""
        rest = {index + i for index, (_, count) in self._runs.items() for i in range(1, count)}
        joined = {index: whole for index, (whole, _) in self._runs.items()}
        return Encoder([joined.get(i, field) for i, field in enumerate(self.fields) if i not in rest])

    def unknown(self, ids: NDArray[np.int32]) -> NDArray[np.bool_]:
        """Returns a mask (rows, F) of the fields that have an unknown value."""
        starts = np.cumsum([0, *(f.length for f in self.fields[:-1])])
        return np.logical_or.reduceat(ids == UNKNOWN, starts, axis=1)


def has_unknown(ids: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Returns a mask (rows,) of the rows of one field, (rows, length), that have an unknown value."""
    found: NDArray[np.bool_] = (ids[:, 0] == UNKNOWN) if ids.shape[1] == 1 else (ids == UNKNOWN).any(1)
    return found


def joined(encoded: Sequence[Encoded]) -> NDArray[np.int32]:
    """Returns the ids (rows, places) of all fields; those of a place lie together in memory, which is faster."""
    return np.concatenate([part.ids.T for part in encoded]).T if encoded else np.empty((0, 0), np.int32)


def _whole(column: pa.ChunkedArray) -> pa.Array:
    """Returns the values as one array, without a copy if they are one."""
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def vocabulary_file(index: int) -> str:
    """Returns the file name of a field's vocabulary; numbered, since field names may contain any character."""
    return f"vocabulary-{index:03d}.parquet"
