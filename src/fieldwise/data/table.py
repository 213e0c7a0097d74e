"""Any click log in CSV, TSV or Parquet with a label column: a file, a folder or a glob."""

from collections import Counter
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from fieldwise.core.errors import DataError
from fieldwise.core.hints import setting
from fieldwise.core.registry import unknown
from fieldwise.data.dataframes import unnamed_index_columns
from fieldwise.data.files import (
    check_same_headers,
    delimiter_of,
    find,
    is_parquet,
    parquet_columns,
    parquet_sample,
    sizes,
    text_header,
    text_sample,
)
from fieldwise.data.infer import infer
from fieldwise.data.rules import Rule, is_list
from fieldwise.data.source import BadRows, Files, Source

MAX_COLUMNS: Final = 20_000
"""Maximum number of columns of a file."""


class Table(Source):
    """CSV, TSV or Parquet files with a label column; fields are given, or inferred from the first rows."""

    raw: Path
    """Path of a file, a folder or a glob; text needs a header and may be gzip."""
    label: str
    """Name of the label column."""
    positive: tuple[str, ...] = ()
    """Label values that count as a click, as text; if empty, the label must be 0 or 1."""
    only: tuple[str, ...] = ()
    """Columns that become fields, in order; if empty, all columns except the label."""
    ignore: tuple[str, ...] = ()
    """Columns that are not fields."""
    delimiter: str | None = None
    """Delimiter of text columns; by default the most frequent one in the header."""
    bad_rows: BadRows = "stop"
    """Rows with a wrong number of columns: stop with an error, or skip and count them."""

    def open(self) -> Files:
        """Finds the files and infers fields from the first rows; reads no others."""
        paths = find(self.raw)
        if is_parquet(paths):
            _check_column_count(paths[0], parquet_columns(paths[0]))
            sample, delimiter = parquet_sample(paths[0]), None
        else:
            delimiter = self.delimiter or delimiter_of(paths[0])
            _check_column_count(paths[0], len(text_header(paths[0], delimiter)))
            check_same_headers(paths, delimiter)
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
        """Returns the settings without the path, plus the file sizes."""
        return {**self.values(), "raw": sizes(find(self.raw))}


def choose(
    sample: pa.Table, label: str, only: tuple[str, ...], ignore: tuple[str, ...], fields: dict[str, Rule]
) -> tuple[tuple[str, ...], dict[str, Rule]]:
    """Returns the fields of a table and their inferred rules, before the user's rules override them."""
    names = sample.column_names
    wanted = [label, *only, *ignore, *(rule.column for rule in fields.values() if rule.column)]
    known = set(names)
    strange = [name for name in wanted if name not in known]
    if strange:
        raise DataError(unknown("data", strange[0], names))
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise DataError(f"Repeated column names: {', '.join(sorted(repeated))}. Allowed: unique names. Rename them.")
    extra = [name for name, rule in fields.items() if rule.column]  # second fields of a column
    left_out = {label, *ignore}
    index = unnamed_index_columns(sample.schema)
    chosen = [*(only or (name for name in names if name not in index)), *extra]
    kept = tuple(dict.fromkeys(name for name in chosen if name not in left_out))
    if not kept:
        raise DataError(f"No field is left besides the label '{label}'. Allowed: 1 or more. List columns in data.only.")
    columns = {name: rule.column for name, rule in fields.items()}
    _check_types({name: sample.schema.field(columns.get(name) or name).type for name in kept})
    # text with several values is not a number
    split = {name for name, rule in fields.items() if rule.separator is not None}
    return kept, {name: infer(name, sample[columns.get(name) or name]) for name in kept if name not in split}


def _check_column_count(path: Path, columns: int) -> None:
    """Refuses a table with more columns than an engine can handle in reasonable time."""
    if columns > MAX_COLUMNS:
        raise DataError(
            f"'{path}' has {columns:,} columns. Allowed: at most {MAX_COLUMNS:,}, since the time to bind a "
            "query grows with their square. Write the relevant columns to a new file, or check the delimiter."
        )


def _check_types(types: dict[str, pa.DataType]) -> None:
    """Refuses columns that are not text, numbers, times or lists of them."""
    for name, kind in types.items():
        inner = kind.value_type if is_list(kind) or pa.types.is_dictionary(kind) else kind
        inner = inner.storage_type if isinstance(inner, pa.BaseExtensionType) else inner
        if pa.types.is_nested(inner) or pa.types.is_binary(inner) or pa.types.is_large_binary(inner):
            raise DataError(
                f"Column '{name}' holds {kind}. Allowed: text, numbers, times, and lists of them. "
                f"Exclude it with {setting('data.ignore', [name])}, or convert it."
            )
