"""Predicts the rows of files in constant memory; the output file is written completely or not at all."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq

from fieldwise.core.errors import DataError
from fieldwise.core.files import replacing
from fieldwise.core.in_order import in_order
from fieldwise.data.files import PARQUET, Raw, find
from fieldwise.data.text_layout import UTF8
from fieldwise.data.unparsed import Unparsed
from fieldwise.exports.predictor import Predictor
from fieldwise.exports.raw_rows import RawRows

PROBABILITY: Final = "probability"
"""Name of the output column."""
_ENOUGH: Final = 10_000
"""Texts after which too many that are no times stop the prediction early."""
Progress = Callable[[str, int, int | None], None]
"""Called with the name of the step, the rows done, and the total number of rows (None if unknown)."""


def predict_file(
    predictor: Predictor,
    raw: Raw,
    out: Path | str,
    keep: Sequence[str] = (),
    header: Sequence[str] = (),
    progress: Progress = lambda *_: None,
    encoding: str = UTF8,
    delimiter: str | None = None,
) -> int:
    """Writes the probability of every row of `raw` to `out`, in order, and returns the number of rows.

    The file name decides between text, JSON Lines and Parquet. `keep` names columns to copy to the output; `header`
    names the columns of text files that have no header line.
    """
    out = Path(out)
    rows = RawRows(raw, header, delimiter, encoding)
    _check_out(raw, out, keep)
    columns = tuple(dict.fromkeys([*predictor.columns, *keep]))
    types = rows.schema(columns)
    schema = pa.schema([*(types.field(name) for name in keep), (PROBABILITY, pa.float32())])
    done, unparsed = 0, Unparsed(predictor.encoder.fields)
    with replacing(out) as work, _writing(out, work, schema) as write, predictor.in_threads() as threads:

        def predicted(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, Unparsed]:
            counts = Unparsed(predictor.encoder.fields)
            found = pa.array(predictor.counting(batch, counts))
            return pa.record_batch([*(batch.column(name) for name in keep), found], schema=schema), counts

        with closing(in_order(predicted, rows.batches(columns, keep), threads)) as parts:
            for part, counts in parts:
                unparsed.join(counts.found)
                unparsed.check(_ENOUGH)
                write(part)
                done += part.num_rows
                progress("predict", done, rows.rows)
        unparsed.check()
    return done


def _check_out(raw: Raw, out: Path, keep: Sequence[str]) -> None:
    if not out.name.lower().endswith((*PARQUET, ".csv", ".tsv")):
        raise DataError(f"Output '{out}' has an unknown suffix. Allowed: .csv, .tsv or .parquet. Rename it.")
    if out.is_dir():
        raise DataError(f"Output '{out}' is a folder. Name a file in it.")
    if out.exists() and any(out.samefile(path) for path in find(raw)):
        raise DataError(f"Output '{out}' is also the input. Name another file.")
    if PROBABILITY in keep:
        raise DataError(f"'{PROBABILITY}' is the name of the output column. Rename the kept column.")


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
