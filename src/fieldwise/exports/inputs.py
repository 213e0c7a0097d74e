"""How raw values enter a graph: one tensor for each raw column, whose type follows from how its fields are made.

| kind | fields | tensor | null |
|---|---|---|---|
| text | categories of text, dates or truth values | string (B,) | the graph's null text |
| whole | categories of whole numbers; uint64 by its bits | int64 (B,) | -2**63 |
| number | bins of numbers, categories of broken numbers | double (B,) | NaN |
| time | hour, weekday, weekend | int64 (B,), seconds since 1970, in UTC where times have a zone | -2**63 |

Text with a separator is split inside the graph. Other fields with several values a row take a tensor (B, K) of any K,
and beside it `NAME.length` (B,), how many of the K count; an empty list is one null.
"""

from typing import Any, Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fieldwise.core.errors import DataError
from fieldwise.core.records import Record
from fieldwise.data.convert import integers
from fieldwise.data.encoder import Encoder, FieldEncoder
from fieldwise.data.rules import Rule, not_numbers, numbers_of

Kind = Literal["text", "whole", "number", "time"]
NULL_WHOLE: Final = -(2**63)
_UNSEEN: Final = -0x6A09E667F3BCC908
"""Stands for what is no whole number, where whole numbers are the categories; no id is this one but by a freak."""


class Input(Record):
    """One tensor of a graph."""

    name: str
    column: str
    kind: Kind
    several: bool
    """Whether a row holds a list, whose length is an input too."""
    null: str | None
    """Of kind text: what stands for null."""

    @property
    def length_name(self) -> str:
        """The input that says how many values of a list count."""
        return f"{self.name}.length"


def inputs_of(encoder: Encoder) -> list[Input]:
    """The input of each field; fields of one column share theirs, where their kinds agree."""
    keys = [(f.rule.column or f.name, _kind(f), f.several and not splits(f)) for f in encoder.fields]
    columns = [column for column, _, _ in dict.fromkeys(keys)]
    null = _null_text(encoder)
    return [
        Input(
            name=column if columns.count(column) == 1 and column != "probability" else f"{column}.{kind}",
            column=column,
            kind=kind,
            several=several,
            null=null if kind == "text" else None,
        )
        for column, kind, several in keys
    ]


def splits(field: FieldEncoder) -> bool:
    """Whether a field's text is split inside the graph."""
    return field.several and field.rule.separator is not None and _kind(field) == "text"


def feeds(encoder: Encoder, rows: Any) -> dict[str, NDArray[Any]]:
    """The tensors of raw rows: a dict of columns, or anything with an Arrow stream."""
    table, tensors = encoder.table(rows), {}
    pairs = zip(encoder.fields, inputs_of(encoder), strict=True)
    # of fields that share a tensor, the one that knows most values says how they are written
    for field, entry in sorted(pairs, key=lambda pair: pair[0].vocabulary.cardinality):
        column = table[entry.column].combine_chunks()
        if entry.several:
            tensors[entry.name], tensors[entry.length_name] = _lists(field, entry, column)
        else:
            tensors[entry.name] = _values(field, entry, column)
    return tensors


def _kind(field: FieldEncoder) -> Kind:
    if field.rule.is_number:
        return "number"
    if field.rule.kind != "category":
        return "time"
    kind = field.vocabulary.values.type
    return "whole" if pa.types.is_integer(kind) else "number" if pa.types.is_floating(kind) else "text"


def _null_text(encoder: Encoder) -> str:
    r"""`\N`, as text files of databases write it, or longer where that is a value; no separator is in it."""
    texts = [f for f in encoder.fields if _kind(f) == "text"]
    separators = [f.rule.separator for f in texts if f.rule.separator]
    found = "\\N" if not any(separator in "\\N" * 9 for separator in separators) else "null"
    while any(pc.index(f.vocabulary.values.cast(pa.string()), found).as_py() >= 0 for f in texts):
        found += found
    return found


def _lists(field: FieldEncoder, entry: Input, column: pa.Array) -> tuple[NDArray[Any], NDArray[np.int64]]:
    lists = field.rule.lists(column)
    if lists is None:  # rows with one value each
        return _values(field, entry, column)[:, None], np.ones(len(column), np.int64)
    lists = pc.list_slice(lists, 0, field.length)
    rows, lengths = np.asarray(pc.list_parent_indices(lists)), np.asarray(pc.list_value_length(lists))
    flat = _values(field, entry, lists.flatten())
    values = np.full((len(lists), lengths.max(initial=1)), flat[0] if len(flat) else 0, flat.dtype)
    values[rows, np.arange(len(rows)) - (np.cumsum(lengths) - lengths)[rows]] = flat
    return values, lengths.astype(np.int64)


def _values(field: FieldEncoder, entry: Input, column: pa.Array) -> NDArray[Any]:
    if entry.kind == "number":
        wrong = not_numbers(column)
        if wrong:
            raise DataError(f"Column '{entry.column}' is a number in the graph, but holds {wrong[:3]}. Mend the rows.")
        numbers, known = numbers_of(column)
        return np.where(known, numbers, np.nan)
    if entry.kind == "time":
        times = field.rule.times(column)
        return _filled(pc.floor_temporal(times, unit="second").cast(pa.timestamp("s")).cast(pa.int64()), NULL_WHOLE)
    plain = Rule().apply(column)
    if entry.kind == "text":
        texts = _split(field, plain) if splits(field) else field.vocabulary.texts(plain)
        return np.asarray(texts.fill_null(entry.null).to_pylist(), dtype=object)
    whole = pc.if_else(plain.is_null(), NULL_WHOLE, pc.fill_null(integers(plain), _UNSEEN))
    return _filled(whole, NULL_WHOLE)


def _split(field: FieldEncoder, column: pa.Array) -> pa.Array:
    """Text whose parts are written as the vocabulary writes them; the graph splits it."""
    lists = pc.split_pattern(column.cast(pa.string()), field.rule.separator)
    parts = pa.ListArray.from_arrays(lists.offsets, field.vocabulary.texts(lists.values), mask=lists.is_null())
    return pc.binary_join(parts, field.rule.separator)


def _filled(column: pa.Array, null: int) -> NDArray[np.int64]:
    found: NDArray[np.int64] = column.fill_null(null).to_numpy(zero_copy_only=False)
    return found
