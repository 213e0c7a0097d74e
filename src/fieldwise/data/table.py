"""Any click log in CSV, TSV, JSON Lines or Parquet with a label column: files, a folder or a glob."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import AfterValidator, Field

from fieldwise.core.automatic import AUTO
from fieldwise.core.errors import DataError
from fieldwise.core.hints import either, setting
from fieldwise.core.registry import unknown
from fieldwise.data.cells import NULLS, Cells, has_decimal_commas
from fieldwise.data.convert import integers
from fieldwise.data.dataframes import unnamed_index_columns
from fieldwise.data.files import Format, find, format_of, parquet_columns, parquet_sample, sizes
from fieldwise.data.json_lines import json_batches, json_schema
from fieldwise.data.packed import shown
from fieldwise.data.rules import Rule, is_bytes, is_list, plain
from fieldwise.data.source import BadRows, Files, MinCount, Source
from fieldwise.data.text_layout import (
    SAMPLE,
    UTF8,
    check_encoding,
    check_same_layout,
    layout_of,
    seems_headerless,
    text_sample,
)
from fieldwise.data.threshold import label_of

MAX_COLUMNS: Final = 20_000
"""Maximum number of columns of a file."""


class Table(Source):
    """CSV, TSV, JSON Lines or Parquet files with a label column; fields are given, or inferred from the first rows."""

    raw: Path | tuple[Path, ...]
    """Path of a file, a folder or a glob, or a list of them; text may be gz, bz2, zst, or zip with one file."""
    label: str
    """Name of the label column, or a comparison such as 'rating >= 4'."""
    min_count: MinCount = AUTO
    """Values with fewer training rows than this map to `unknown`; at least 1. auto: 1, 2, 5, 10 or 20 for categories,
    whichever is clearly best for a logistic regression on the validation rows."""
    positive: tuple[str, ...] = ()
    """Label values that count as a click, as text; if empty, the label must be 0 or 1."""
    only: tuple[str, ...] = ()
    """Columns that become fields, in order; if empty, all columns except the label."""
    ignore: tuple[str, ...] = ()
    """Columns that are not fields."""
    header: tuple[str, ...] = ()
    """Names of the columns of text files without a header line."""
    delimiter: str | None = Field(None, min_length=1, max_length=1)
    """Delimiter of text columns, one character; by default the most frequent one in the header."""
    encoding: Annotated[str, AfterValidator(check_encoding)] = UTF8
    """Encoding of text files, such as latin-1 or cp1252."""
    nulls: tuple[str, ...] = NULLS
    """Texts that mean null, in addition to an empty cell."""
    decimal: Literal[".", ","] | None = None
    """Decimal sign of numbers in text; by default a comma where a column of the first rows shows it."""
    bad_rows: BadRows = "stop"
    """Rows with a wrong number of columns: stop with an error, or skip and count them."""

    def open(self) -> Files:
        """Finds the files and infers fields from the first rows; reads no others."""
        paths = find(self.raw)
        found, layout = format_of(paths[0]), None
        if found == "text":
            layout = layout_of(paths[0], self.header, self.delimiter, self.encoding)
            _check_column_count(paths[0], len(layout.columns))
            check_same_layout(paths[0], paths[1:], layout)
            sample = text_sample(paths[0], layout)
        else:
            sample = self._typed_sample(paths, found)
        decimal = self.decimal or (_decimal(sample) if layout and layout.delimiter != "," else ".")
        cells = Cells(nulls=self.nulls, decimal=decimal, trim=layout is not None and layout.spaced)
        label, threshold = label_of(self.label, sample.column_names)
        _check_label(label, sample.column_names, paths[0] if layout and layout.header else None)
        sample = cleaned(sample, cells)
        fields = choose(sample, label, self.only, self.ignore, self.fields)
        return Files(
            paths=paths,
            columns=tuple(sample.column_names),
            fields=fields,
            label=label,
            rules={},
            delimiter=layout.delimiter if layout else None,
            header=not self.header,
            bad_rows=self.bad_rows,
            positive=self.positive,
            encoding=self.encoding,
            spaced=cells.trim,
            is_json=found == "json",
            cells=cells,
            threshold=threshold,
            inferred=inferred_fields(fields, self.fields),
            index=index_columns(sample),
        )

    def _typed_sample(self, paths: tuple[Path, ...], found: Format) -> pa.Table:
        if self.header:
            raise DataError(f"'{paths[0]}' names its columns itself. Leave the header out.")
        if found == "json":
            schema = json_schema(*paths)
            return pa.Table.from_batches([next(json_batches(paths[0], schema))]).slice(0, SAMPLE)
        _check_column_count(paths[0], parquet_columns(paths[0]))
        return parquet_sample(paths[0])

    def origin(self) -> dict[str, Any]:
        """Returns the settings without the path, plus the file sizes."""
        return {**self.values(), "raw": sizes(find(self.raw))}


def cleaned(sample: pa.Table, cells: Cells) -> pa.Table:
    """Returns the first rows with cells of text read as in training."""
    columns = [cells.clean(column.combine_chunks()) for column in sample.columns]
    return pa.Table.from_arrays(columns, sample.column_names).replace_schema_metadata(sample.schema.metadata)


def _decimal(sample: pa.Table) -> Literal[".", ","]:
    return "," if has_decimal_commas(sample.columns) else "."


def _check_label(label: str, names: Sequence[str], path: Path | None) -> None:
    """Refuses a label that is no column; says so if the names look like values."""
    if label in names:
        return
    hint = ""
    if path is not None and len(names) == 1:
        raise DataError(
            f"{shown(path)} is no table with a column '{label}': its first line is {names[0][:40]!r}. "
            "Give text with one header line, or name its delimiter or header."
        )
    if path is not None and seems_headerless(names):
        flag = either("--header a,b,c", "header=('a', 'b', 'c')")
        hint = f" '{path}' seems to have no header: name its {len(names)} columns with {flag}."
    raise DataError(unknown("data", label, names) + hint)


def choose(
    sample: pa.Table, label: str, only: tuple[str, ...], ignore: tuple[str, ...], fields: dict[str, Rule]
) -> tuple[str, ...]:
    """Returns the names of the columns and second fields that may become fields, in order."""
    names = sample.column_names
    wanted = [label, *only, *ignore, *(rule.column for rule in fields.values() if rule.column)]
    known = set(names)
    strange = [name for name in wanted if name not in known]
    if strange:
        raise DataError(unknown("data", strange[0], names))
    extra = [name for name, rule in fields.items() if rule.column]  # second fields of a column
    left_out = {label, *ignore}
    index = index_columns(sample)
    chosen = [*(only or (name for name in names if name not in index)), *extra]
    kept = tuple(dict.fromkeys(name for name in chosen if name not in left_out))
    if not kept:
        raise DataError(f"No field is left besides the label '{label}'. Allowed: 1 or more. Give more columns.")
    columns = {name: rule.column for name, rule in fields.items()}
    _check_types({name: sample.schema.field(columns.get(name) or name).type for name in kept})
    return kept


def inferred_fields(names: tuple[str, ...], given: dict[str, Rule]) -> frozenset[str]:
    """Returns the fields whose kind the settings do not determine."""
    return frozenset(name for name in names if not {"kind", "separator"} & given.get(name, Rule()).model_fields_set)


def index_columns(sample: pa.Table) -> tuple[str, ...]:
    """Returns the columns that were an index in pandas, which are no fields."""
    return (*unnamed_index_columns(sample.schema), *_row_numbers(sample))


def _row_numbers(sample: pa.Table) -> list[str]:
    """Returns a first column without a name that counts the rows, as pandas writes an index."""
    name = sample.column_names[0]
    if name != "column_1" or not sample.num_rows:
        return []
    numbers = integers(plain(sample[name]))
    counts = pa.array(range(sample.num_rows), pa.int64())
    return [name] if any(numbers.equals(pc.add(counts, start)) for start in (0, 1)) else []


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
        of_pandas = isinstance(inner, pa.BaseExtensionType) and inner.extension_name.startswith("pandas.")
        inner = inner.storage_type if isinstance(inner, pa.BaseExtensionType) else inner
        if of_pandas or pa.types.is_nested(inner) or is_bytes(inner):
            raise DataError(
                f"Column '{name}' holds {kind}. Allowed: text, numbers, times, and lists of them. "
                f"Exclude it with {setting('data.ignore', [name])}, or convert it."
            )
