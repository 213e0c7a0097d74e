"""DuckDB on this machine: larger data than memory, no server."""

import errno
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pydantic import Field

from fieldwise.core.errors import DataError
from fieldwise.core.files import full
from fieldwise.data.engines.engine import Engine, Preparation, Staged
from fieldwise.data.source import Files

if TYPE_CHECKING:
    import ibis.expr.types as ir

    from fieldwise.data.engines.expressions import BadRow

MOST_BAD: Final = 100_000
"""Bad rows that are kept in mind; a file with more of them is another kind of file."""
_LONGEST: Final = 16 << 20
"""Bytes of a line of text."""
_REST: Final = 640
"""MiB that the interpreter, its libraries and a batch of rows take, whatever the setting."""

_WIDE: Final = 1_000
"""Columns for whose blocks the memory setting has room."""
_BLOCKS: Final = 2
"""MiB of blocks that DuckDB counts for a column."""
_GROUP: Final = 131_072 * 500
"""Cells of a row group."""


class DuckDB(Engine):
    """The embedded engine: this machine, with what does not fit in memory on disk."""

    threads: int | None = Field(None, ge=1)
    """Cores to use; all without it."""

    def stage(self, plan: Preparation) -> Staged:
        """Reads, checks and splits the rows in DuckDB."""
        try:
            from fieldwise.data.engines.expressions import EngineRows
        except ImportError as error:
            raise DataError(f"Engine 'duckdb' is not installed ({error}). Run: pip install fieldwise.") from error
        return EngineRows(_Session(self, plan.work), plan)


class _Session:
    def __init__(self, engine: DuckDB, work: Path) -> None:
        import ibis

        self._threads = engine.threads or os.cpu_count() or 1
        # half is for DuckDB itself, the other half for values and batches
        self._limit = min(engine.memory // 2, engine.memory - _REST)
        self._con = ibis.duckdb.connect(
            memory_limit=f"{self._limit}MiB",
            temp_directory=str(work / "spill"),
            preserve_insertion_order=True,
        )
        self._con.con.execute("SET enable_progress_bar = false")  # the library is quiet
        self._reads = self._views = 0

    def read(self, files: Files) -> "ir.Table":
        """Raw columns and the number of each row."""
        import ibis

        # DuckDB counts whole blocks of every column, which few rows hardly touch
        wide = max(0, len(files.columns) - _WIDE) * _BLOCKS
        self._con.con.execute(f"SET memory_limit = '{self._limit + wide}MiB'")
        paths = [str(path) for path in files.paths]
        if not files.is_text:
            table = self._con.read_parquet(paths, union_by_name=True)
        else:
            self._reads += 1
            quote = '"' if files.quoted else ""
            table = self._con.read_csv(
                paths,
                columns=dict.fromkeys(files.columns, "VARCHAR"),
                auto_detect=False,
                header=files.header,
                delim=files.delimiter,
                quote=quote,
                escape=quote,
                nullstr="",
                allow_quoted_nulls=False,
                ignore_errors=True,
                store_rejects=True,
                rejects_limit=MOST_BAD,
                max_line_size=_LONGEST,
                buffer_size=2 * _LONGEST,  # without it 16 of the longest lines, 256 MiB, some of them at a time
            )
        return table.mutate(__row=ibis.row_number())

    def write(self, rows: "ir.Table", folder: Path, ordered: bool) -> None:
        """One file; DuckDB keeps the order of rows."""
        import duckdb

        folder.mkdir()
        raw = "__row" in rows.columns
        rows = rows.drop("__row") if raw else rows
        # raw rows are numbered by one thread; more would only read ahead, and spill what waits for its turn to disk
        self._con.con.execute(f"SET threads = {1 if raw else self._threads}")
        try:
            # rows of a group wait in memory, so wide rows come in smaller groups
            group = min(131_072, max(2_048, _GROUP // len(rows.columns)))
            self._con.to_parquet(rows, folder / "0.parquet", row_group_size=group, compression="lz4")
        except duckdb.Error as error:
            if full(error):
                raise OSError(errno.ENOSPC, _first_line(error)) from error
            if isinstance(error, duckdb.OutOfMemoryException):
                raise DataError(
                    f"DuckDB needs more memory for {len(rows.columns):,} columns ({_first_line(error)}). Give more "
                    "with --set engine.memory=MiB, or use fewer cores, which need less, with --engine duckdb "
                    "--set engine.threads=1."
                ) from error
            does = "read or write" if isinstance(error, duckdb.IOException) else "read these rows"
            raise DataError(f"DuckDB cannot {does}: {_first_line(error)}. Check the files.") from error

    def written(self, folder: Path, columns: Sequence[str]) -> "ir.Table":
        """Reads back some columns of what `write` wrote; a view of all of them would be bound in every query."""
        self._views += 1
        name, path = f"written_{self._views}", str(folder / "0.parquet").replace("'", "''")
        chosen = ", ".join(columns)  # numbered names of ours
        self._con.con.execute(f"CREATE TEMP VIEW {name} AS SELECT {chosen} FROM read_parquet('{path}')")  # noqa: S608
        return self._con.table(name)

    def bad_rows(self) -> tuple[int, "BadRow | None"]:
        """From the table in which DuckDB notes what it could not read."""
        from fieldwise.data.engines.expressions import BadRow

        if not self._reads:
            return 0, None
        found = self._con.raw_sql(
            "SELECT line, csv_line, error_message, file_path FROM reject_errors "
            "JOIN reject_scans USING (scan_id, file_id) ORDER BY scan_id, file_id, line"
        )
        first = found.fetchone()
        if first is None:
            return 0, None
        line, text, why, path = first
        count, errors = self._con.raw_sql(
            "SELECT count(DISTINCT (file_path, line)), count(*) FROM reject_errors "
            "JOIN reject_scans USING (scan_id, file_id)"  # a file may be scanned twice, for its times
        ).fetchone()
        if errors >= MOST_BAD:
            raise DataError(
                f"'{path}' has more than {count:,} bad rows, the first at line {line:,}: {why}. "
                "Check the source, the delimiter and the columns."
            )
        return int(count), BadRow(str(path), int(line), str(text), str(why).splitlines()[0].rstrip("."))


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0].rstrip(".")
