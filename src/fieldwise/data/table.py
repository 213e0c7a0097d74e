"""Any click log in CSV, TSV or Parquet: a file, a folder or a glob, with a column that says what was clicked."""

from collections import Counter
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from fieldwise.core.errors import DataError
from fieldwise.core.names import unknown
from fieldwise.data.files import (
    delimiter_of,
    find,
    is_parquet,
    parquet_columns,
    parquet_sample,
    same_headers,
    sizes,
    text_header,
    text_sample,
)
from fieldwise.data.in_memory import unnamed_index
from fieldwise.data.infer import infer
from fieldwise.data.rules import Rule
from fieldwise.data.source import BadRows, Files, Source

MOST_COLUMNS: Final = 20_000
"""Columns of a file."""


class Table(Source):
    """CSV, TSV or Parquet files with a label column; fields are named, or inferred from the first rows."""

    raw: Path
    """A file, a folder or a glob; text may be gz and has a header."""
    label: str
    """The column that says whether a row was clicked."""
    positive: tuple[str, ...] = ()
    """The label's values that count as a click, as text; without them it must hold 0 and 1."""
    only: tuple[str, ...] = ()
    """The columns that become fields, in order; without them all but the label."""
    ignore: tuple[str, ...] = ()
    """Columns that become no field."""
    delimiter: str | None = None
    """Between the columns of text; without it, the one that the header holds most often."""
    bad_rows: BadRows = "stop"
    """Rows with another number of columns: stop at them, or skip and count them."""

    def open(self) -> Files:
        """Looks at the first rows alone."""
        paths = find(self.raw)
        if is_parquet(paths):
            _refuse_many(paths[0], parquet_columns(paths[0]))
            sample, delimiter = parquet_sample(paths[0]), None
        else:
            delimiter = self.delimiter or delimiter_of(paths[0])
            _refuse_many(paths[0], len(text_header(paths[0], delimiter)))
            same_headers(paths, delimiter)
            sample = text_sample(paths[0], delimiter)
        fields, rules = choose(sample, self.label, self.only, self.ignore, self.fields)
        return Files(
            paths=paths,
            columns=tuple(sample.column_names),
            fields=fields,
            label=self.label,
            rules=rules,
            delimiter=delimiter,
            bad_rows=self.bad_rows,
            positive=self.positive,
        )

    def origin(self) -> dict[str, Any]:
        """The settings less the place, and the sizes of the files."""
        return {**self.values(), "raw": sizes(find(self.raw))}


def choose(
    sample: pa.Table, label: str, only: tuple[str, ...], ignore: tuple[str, ...], fields: dict[str, Rule]
) -> tuple[tuple[str, ...], dict[str, Rule]]:
    """The fields of a table, and a rule for each by the look of it, over which the user's are laid."""
    names = sample.column_names
    wanted = [label, *only, *ignore, *(rule.column for rule in fields.values() if rule.column)]
    known = set(names)
    strange = [name for name in wanted if name not in known]
    if strange:
        raise DataError(unknown("data", strange[0], names))
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise DataError(f"Repeated column names: {', '.join(sorted(repeated))}. Names must differ. Rename them.")
    extra = [name for name, rule in fields.items() if rule.column]  # a second field of a column
    left_out = {label, *ignore}
    index = unnamed_index(sample.schema)
    chosen = [*(only or (name for name in names if name not in index)), *extra]
    kept = tuple(dict.fromkeys(name for name in chosen if name not in left_out))
    if not kept:
        raise DataError(f"No column is left to become a field beside the label '{label}'. Name some with data.only.")
    columns = {name: rule.column for name, rule in fields.items()}
    _refuse_nested({name: sample.schema.field(columns.get(name) or name).type for name in kept})
    split = {name for name, rule in fields.items() if rule.separator is not None}  # its text is no number as a whole
    return kept, {name: infer(name, sample[columns.get(name) or name]) for name in kept if name not in split}


def _refuse_many(path: Path, columns: int) -> None:
    """Refuses a table that an engine would not come to an end with."""
    if columns > MOST_COLUMNS:
        raise DataError(
            f"'{path}' has {columns:,} columns. Allowed: at most {MOST_COLUMNS:,}: the time to bind a query "
            "grows with their square. Write the columns that matter into a file of their own, or check the delimiter."
        )


def _refuse_nested(types: dict[str, pa.DataType]) -> None:
    """Refuses columns whose values are neither text, numbers nor times, nor lists of them."""
    for name, kind in types.items():
        inner = kind.value_type if _is_list(kind) else kind
        if pa.types.is_nested(inner) or pa.types.is_binary(inner) or pa.types.is_large_binary(inner):
            raise DataError(
                f"Column '{name}' holds {kind}. Allowed: text, numbers, times, and lists of them. "
                f"Leave it out with --set 'data.ignore=[\"{name}\"]', or convert it."
            )


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))
