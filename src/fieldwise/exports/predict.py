"""Predictions of files: any number of rows in constant memory, and a whole output file or none."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq

from fieldwise.core.errors import DataError
from fieldwise.core.files import replacing
from fieldwise.data.files import PARQUET, find
from fieldwise.exports.predictor import Predictor
from fieldwise.exports.raw_rows import RawRows

PROBABILITY: Final = "probability"
"""The column of the output."""
Progress = Callable[[str, int, int | None], None]
"""Called with what is done, rows done, and how many in all (None while unknown)."""


def predict_file(
    predictor: Predictor,
    raw: Path | str,
    out: Path | str,
    keep: Sequence[str] = (),
    header: Sequence[str] = (),
    progress: Progress = lambda *_: None,
) -> int:
    """Writes the probability of every row of `raw` to `out`, in order, and returns how many there are.

    Both are CSV, TSV or Parquet by their names. `keep` copies columns of the rows; `header` names the columns of text
    that has no header line.
    """
    raw, out = Path(raw), Path(out)
    rows = RawRows(raw, header)
    _check_out(raw, out, keep)
    columns = tuple(dict.fromkeys([*predictor.columns, *keep]))
    types = rows.schema(columns)
    schema = pa.schema([*(types.field(name) for name in keep), (PROBABILITY, pa.float32())])
    done = 0
    with replacing(out) as work, _writing(out, work, schema) as write:
        for batch in rows.batches(columns):
            found = predictor.predict(batch)
            write(pa.record_batch([*(batch.column(name) for name in keep), pa.array(found)], schema=schema))
            done += batch.num_rows
            progress("predict", done, rows.rows)
    return done


def _check_out(raw: Path, out: Path, keep: Sequence[str]) -> None:
    if not out.name.lower().endswith((*PARQUET, ".csv", ".tsv")):
        raise DataError(f"Output '{out}'. Allowed: a name ending in .csv, .tsv or .parquet. Rename it.")
    if out.is_dir():
        raise DataError(f"Output '{out}' is a folder. Name a file in it.")
    if out.exists() and any(out.samefile(path) for path in find(raw)):
        raise DataError(f"Output '{out}' is the file that is read. Name another.")
    if PROBABILITY in keep:
        raise DataError(f"'{PROBABILITY}' is the column that is written. Rename the kept column.")


@contextmanager
def _writing(out: Path, work: Path, schema: pa.Schema) -> Iterator[Callable[[pa.RecordBatch], None]]:
    name = out.name.lower()
    if name.endswith(PARQUET):
        with pq.ParquetWriter(work, schema) as parquet:
            yield parquet.write_batch
    else:
        options = csv.WriteOptions(delimiter="\t" if name.endswith(".tsv") else ",")
        with csv.CSVWriter(work, schema, write_options=options) as text:
            yield text.write_batch
