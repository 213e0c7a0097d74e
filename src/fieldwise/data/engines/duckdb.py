"""Engine DuckDB: data larger than memory on this machine, without a server."""

import errno
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pydantic import Field

from fieldwise.core.errors import DataError
from fieldwise.core.files import full
from fieldwise.core.hints import either
from fieldwise.data.engines.columns import column
from fieldwise.data.engines.duckdb_errors import first_line, streamed
from fieldwise.data.engines.engine import LABEL, SPLIT, Engine, Preparation, Staged, field
from fieldwise.data.engines.engine_rows import EngineRows
from fieldwise.data.engines.session import ROW, BadRow
from fieldwise.data.engines.simple_text import NotSimpleError, may_be_simple, read_simple, with_splits
from fieldwise.data.engines.split_files import NumberSplit
from fieldwise.data.engines.staged_file import READ, is_plain, write_rows
from fieldwise.data.engines.written_counts import WrittenCounts
from fieldwise.data.source import Files

if TYPE_CHECKING:
    import ibis.expr.types as ir

MAX_BAD_ROWS: Final = 100_000
"""Bad rows that DuckDB records; a file with more of them has another format."""
_MAX_LINE: Final = 16 << 20
"""Maximum bytes of a line of text."""
_BASE_MEMORY: Final = 640
"""MiB of the interpreter, its libraries and one batch of rows, at any setting."""
_KEPT: Final = "16MiB"
"""What DuckDB keeps of freed memory; other steps need the rest."""
_QUERY_PARTS: Final = 4
"""Fraction of DuckDB's memory that holds the values which a query counts; its tables take a small multiple of them."""
_INCLUDED_COLUMNS: Final = 1_000
"""Number of columns whose blocks fit into the memory setting."""
_COLUMN_BLOCKS: Final = 2
"""MiB of blocks that DuckDB reserves per column."""
_GROUP_CELLS: Final = 131_072 * 500
"""Maximum cells per row group."""


class DuckDB(Engine):
    """The embedded engine: runs on this machine, and spills to disk what does not fit in memory."""

    threads: int | None = Field(None, ge=1)
    """Number of threads, at least 1; by default all cores."""

    @property
    def encoding_threads(self) -> int:
        """Threads that encode rows."""
        return super().encoding_threads if self.threads is None else min(self.threads, super().encoding_threads)

    def stage(self, plan: Preparation) -> Staged:
        """Reads, checks and splits the rows in DuckDB."""
        try:
            return EngineRows(_Session(self, plan.work), plan)
        except ImportError as error:
            raise DataError(f"Engine 'duckdb' is not installed ({error}). Run: pip install fieldwise.") from error


class _Session:
    max_local_rows = sys.maxsize

    def __init__(self, engine: DuckDB, work: Path) -> None:
        import duckdb

        self._threads = engine.threads or os.cpu_count() or 1
        self.threads = engine.encoding_threads
        self.max_local_bytes = engine.vocabulary_bytes // 4
        # half for DuckDB, the other half for values and batches
        self._limit = min(engine.memory // 2, engine.memory - _BASE_MEMORY)
        self.max_query_bytes: int | None = (self._limit << 20) // _QUERY_PARTS
        self._duckdb = duckdb.connect(
            config={
                "memory_limit": f"{self._limit}MiB",
                "temp_directory": str(work / "spill"),
                "preserve_insertion_order": True,
                "allocator_flush_threshold": _KEPT,
                "allocator_bulk_deallocation_flush_threshold": _KEPT,
            }
        )
        with suppress(duckdb.InvalidInputException):  # a notebook without ipywidgets, where there is no bar to disable
            self._duckdb.execute("SET enable_progress_bar = false")  # the library is quiet
        # it turns a comparison with a list into a join, which takes megabytes per column
        self._duckdb.execute("SET disabled_optimizers = 'in_clause'")
        self._views = 0

    @cached_property
    def _con(self) -> Any:
        """The connection for expressions; importing ibis takes longer than reading 100,000 rows of simple text."""
        import ibis

        return ibis.duckdb.from_connection(self._duckdb)

    def read(self, files: Files) -> "ir.Table":
        """Returns raw columns and ROW."""
        import ibis

        # DuckDB reserves full blocks per column, of which few rows use little
        wide = max(0, len(files.columns) - _INCLUDED_COLUMNS) * _COLUMN_BLOCKS
        self._con.con.execute(f"SET memory_limit = '{self._limit + wide}MiB'")
        paths = [str(path) for path in files.paths]
        if not files.is_text:
            found = self._con.read_parquet(paths, union_by_name=True)
            names = files.stored or files.columns
            table = found.select(**{column(index): found[name] for index, name in enumerate(names)})
        else:
            quote = '"' if files.quoted else ""
            table = self._con.read_csv(
                paths,
                columns={column(index): "VARCHAR" for index in range(len(files.columns))},
                auto_detect=False,
                header=files.header,
                delim=files.delimiter,
                quote=quote,
                escape=quote,
                nullstr="",
                allow_quoted_nulls=False,
                ignore_errors=True,
                store_rejects=True,
                rejects_limit=MAX_BAD_ROWS,
                max_line_size=_MAX_LINE,
                # the default is 16 times the longest line: 256 MiB for each of several buffers
                buffer_size=2 * _MAX_LINE,
            )
        return table.mutate(**{ROW: ibis.row_number()})

    def write(self, rows: "ir.Table", folder: Path, ordered: bool) -> WrittenCounts | None:
        """Writes one file; DuckDB preserves the order of rows."""
        import duckdb

        folder.mkdir()
        raw = ROW in rows.columns
        rows = rows.drop(ROW) if raw else rows
        # one thread numbers raw rows; more would only read ahead and spill to disk
        self._con.con.execute(f"SET threads = {1 if raw else self._threads}")
        try:
            # a row group is buffered, so wide rows get smaller groups
            group = min(131_072, max(2_048, _GROUP_CELLS // len(rows.columns)))
            counts = self._write_here(rows, folder / "0.parquet", group) if raw else None
            if counts is None:
                self._con.to_parquet(rows, folder / "0.parquet", row_group_size=group, compression="lz4")
            return counts
        except duckdb.Error as error:
            if full(error):
                raise OSError(errno.ENOSPC, first_line(error)) from error
            if isinstance(error, duckdb.OutOfMemoryException):
                raise DataError(
                    f"DuckDB needs more memory for {len(rows.columns):,} columns ({first_line(error)}). Allow more "
                    f"with {either('--set engine.memory=MiB', 'fw.DuckDB(memory=MiB)')}, or use one thread, which "
                    f"needs less, with {either('--engine duckdb --set engine.threads=1', 'fw.DuckDB(threads=1)')}."
                ) from error
            action = "read or write" if isinstance(error, duckdb.IOException) else "read these rows"
            raise DataError(f"DuckDB cannot {action}: {first_line(error)}. Check the files.") from error

    def write_text(
        self, files: Files, columns: Sequence[int], split: NumberSplit, folder: Path
    ) -> WrittenCounts | None:
        """Writes staged rows of simple text, of which DuckDB only computes the splits."""
        if not may_be_simple(files):
            return None
        folder.mkdir()
        group = min(131_072, max(2_048, _GROUP_CELLS // (len(columns) + 1)))
        rows = with_splits(read_simple(files, columns), self._numbered(split), len(columns) - 1)
        texts = [(field(index), pa.string()) for index in range(len(columns) - 1)]
        schema, counts = (
            pa.schema([(LABEL, pa.string()), (SPLIT, pa.int8()), *texts]),
            WrittenCounts(self.max_local_bytes),
        )
        try:
            write_rows(schema, rows, folder / "0.parquet", group, counts, files.cells)
        except NotSimpleError:
            shutil.rmtree(folder)
            return None
        return counts

    def _numbered(self, split: NumberSplit) -> Callable[[int, int], pa.Array]:
        """Returns a function that computes the splits of rows by their numbers, from one to another."""
        self._duckdb.execute("SET threads = 1")
        index = f"CAST({split.sql('range')} AS TINYINT)"

        def splits(start: int, stop: int) -> pa.Array:
            query = f"SELECT {index} AS {SPLIT} FROM range({start}, {stop})"  # noqa: S608
            return pa.concat_arrays(self._duckdb.execute(query).to_arrow_table()[SPLIT].chunks)

        return splits

    def _write_here(self, rows: "ir.Table", path: Path, group: int) -> WrittenCounts | None:
        """Writes rows of plain types while DuckDB reads them, which is faster than its writer; None for others."""
        found = self._con.con.execute(self._con.compile(rows)).to_arrow_reader(min(group, READ))
        if not is_plain(found.schema):
            return None
        counts = WrittenCounts(self.max_local_bytes)
        write_rows(found.schema, streamed(found), path, group, counts)
        return counts

    def scan(self, folder: Path, columns: Sequence[str]) -> "ir.Table":
        """Returns some columns of what `write` wrote; a view of all columns would be bound in every query."""
        self._views += 1
        name, path = f"written_{self._views}", str(folder / "0.parquet").replace("'", "''")
        chosen = ", ".join(columns)  # our own numbered names
        self._con.con.execute(f"CREATE TEMP VIEW {name} AS SELECT {chosen} FROM read_parquet('{path}')")  # noqa: S608
        return self._con.table(name)

    def bad_rows(self) -> tuple[int, BadRow | None]:
        """Reads the table in which DuckDB records rejected rows."""
        recorded = "SELECT count(*) FROM duckdb_tables() WHERE table_name = 'reject_errors'"
        if self._duckdb.execute(recorded).fetchone() == (0,):  # DuckDB has read no text
            return 0, None
        found = self._duckdb.execute(
            "SELECT line, csv_line, error_message, file_path FROM reject_errors "
            "JOIN reject_scans USING (scan_id, file_id) ORDER BY scan_id, file_id, line"
        )
        first = found.fetchone()
        if first is None:
            return 0, None
        line, text, reason, path = first
        ((count, errors),) = self._duckdb.execute(
            "SELECT count(DISTINCT (file_path, line)), count(*) FROM reject_errors "
            "JOIN reject_scans USING (scan_id, file_id)"  # a split by time scans a file twice
        ).fetchall()
        if errors >= MAX_BAD_ROWS:
            raise DataError(
                f"'{path}' has more than {count:,} bad rows, the first at line {line:,}: {reason}. "
                "Check the source, the delimiter and the columns."
            )
        return int(count), BadRow(str(path), int(line), str(text), str(reason).splitlines()[0].rstrip("."))
