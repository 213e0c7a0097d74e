"""Engine Spark, for data larger than one machine: the same expressions, in local mode or on a cluster."""

import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlparse

from fieldwise.core.errors import DataError
from fieldwise.core.hints import either
from fieldwise.data.engines.columns import column
from fieldwise.data.engines.engine import Engine, Preparation, Staged
from fieldwise.data.engines.executors import cause, stopping, telling
from fieldwise.data.engines.session import ROW, BadRow
from fieldwise.data.engines.staging import BATCH
from fieldwise.data.files import line_of
from fieldwise.data.source import Files

if TYPE_CHECKING:
    import ibis.expr.types as ir

_BAD: Final = "__bad"
_NULL: Final = "\x01null\x01"
"""Marker of null while Spark reads, so that quoted empty text stays empty text."""
_REPLACEMENT: Final = "\ufffd"
"""Character that Spark silently substitutes for bytes that are not UTF-8."""


class Spark(Engine):
    """Apache Spark, local or on a cluster; needs `pip install fieldwise[spark]` and Java 17."""

    master: str = "local[*]"
    """Master URL, such as spark://host:7077; the cluster must see the raw files and the dataset folder."""

    @property
    def encoding_threads(self) -> int:
        """One, since every executor has its own."""
        return 1

    def stage(self, plan: Preparation) -> Staged:
        """Reads, checks and splits the rows in Spark."""
        try:
            import pyspark  # noqa: F401

            from fieldwise.data.engines.spark_rows import SparkRows, check_folder
        except ImportError as error:
            raise DataError(
                f"Engine 'spark' is not installed ({error}). Run: pip install 'fieldwise[spark]'."
            ) from error
        session = _Session(self)
        if not re.fullmatch(r"local(\[.*\])?", self.master):  # else executors are threads of one machine
            check_folder(session.spark, plan.work)
        return SparkRows(session, plan)


class _Session:
    max_local_rows = BATCH
    max_query_bytes = None

    def __init__(self, engine: Spark) -> None:
        import ibis
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException
        from pyspark.sql import SparkSession

        settings = {
            "spark.driver.memory": f"{engine.memory}m",
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
            "spark.sql.csv.parser.columnPruning.enabled": "false",  # otherwise rows with too few columns are accepted
            "spark.log.level": "FATAL",  # errors are told in one line
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
        }
        if engine.master.startswith("local"):
            settings["spark.sql.shuffle.partitions"] = "4"
        builder = SparkSession.builder.master(engine.master).appName("fieldwise")
        for key, value in settings.items():
            builder = builder.config(key, value)
        try:
            with _this_python():
                self.spark = builder.getOrCreate()
        except (PySparkException, Py4JError, OSError) as error:
            raise DataError(
                f"Spark does not start ({cause(error)}). Needs Java 17 and a reachable master. Check JAVA_HOME "
                f"and {either('--master', 'fw.Spark(master=...)')}."
            ) from error
        self._con = ibis.pyspark.connect(self.spark)
        self.threads, self.max_local_bytes = engine.encoding_threads, engine.vocabulary_bytes // 4
        self._views = 0
        self._written: dict[Path, Any] = {}
        self._bad: list[tuple[str, Any]] = []

    def read(self, files: Files) -> "ir.Table":
        """Returns raw columns and ROW."""
        frame = self._text(files) if files.is_text else self._parquet(files)
        return self._view(_numbered(frame, files))

    def _parquet(self, files: Files) -> Any:
        frame = self.spark.read.parquet(*map(str, files.paths))
        places = {name: index for index, name in enumerate(files.stored or files.columns)}
        return frame.toDF(*(column(places[name]) for name in frame.columns))

    def write(self, rows: "ir.Table", folder: Path, ordered: bool) -> None:
        """Writes a folder of files, ordered by name."""
        if ROW in rows.columns:
            rows = rows.order_by(ROW).drop(ROW)
        with telling(folder), stopping(self.spark):
            self._con.to_parquet_dir(rows, str(folder))

    def write_text(self, files: Files, columns: Sequence[int], split: Any, folder: Path) -> None:
        """Writes none: executors read all text."""

    def scan(self, folder: Path, columns: Sequence[str]) -> "ir.Table":
        """Returns some columns of what `write` wrote."""
        if folder not in self._written:
            self._written[folder] = self.spark.read.parquet(str(folder))
        return self._view(self._written[folder].select(*columns))

    def bad_rows(self) -> tuple[int, BadRow | None]:
        """Returns the rows that Spark could not parse; searches the file for the line, which Spark does not report."""
        count, first = 0, None
        for reason, frame in self._bad:
            count += frame.count()
            found = frame.first() if first is None else None
            if found is not None:
                path, text = Path(_path(found["path"])), str(found[_BAD])
                first = BadRow(str(path), line_of(path, text), text, reason)
        return count, first

    def _has_invalid_utf8(self, files: Files) -> bool:
        """Records lines that are not UTF-8, which the CSV reader would change silently; returns whether any exist."""
        from pyspark.sql import functions as sql

        lines = self.spark.read.text([str(path) for path in files.paths])
        invalid = lines.filter(~sql.is_valid_utf8("value")).select(sql.col("value").alias(_BAD))
        if invalid.isEmpty():
            return False
        self._bad.append(("not utf-8 text", invalid.withColumn("path", sql.input_file_name())))
        return True

    def _text(self, files: Files) -> Any:
        from pyspark.sql import functions as sql
        from pyspark.sql.types import StringType, StructField, StructType

        quote = '"' if files.quoted else ""
        names = [column(index) for index in range(len(files.columns))]
        frame = self.spark.read.csv(
            [str(path) for path in files.paths],
            schema=StructType([StructField(name, StringType()) for name in (*names, _BAD)]),
            sep=files.delimiter,
            header=files.header,
            quote=quote,
            escape=quote,
            multiLine=files.quoted,
            nullValue=_NULL,
            emptyValue="",
            mode="PERMISSIVE",
            columnNameOfCorruptRecord=_BAD,
            maxCharsPerColumn=-1,
        )
        first = sql.col(names[0])
        always = first.isNull() | (sql.length(first) >= 0)  # Spark refuses a query of only the column of bad rows
        if self._has_invalid_utf8(files):
            cells = [sql.coalesce(sql.col(name), sql.lit("")) for name in (*names, _BAD)]
            frame = frame.filter(~sql.contains(sql.concat(*cells), sql.lit(_REPLACEMENT)))
        bad = frame.filter(sql.col(_BAD).isNotNull() & always)
        reason = "wrong number of columns"
        self._bad.append((reason, bad.withColumn("path", sql.input_file_name())))
        return frame.filter(sql.col(_BAD).isNull() & always).drop(_BAD)

    def _view(self, frame: Any) -> "ir.Table":
        self._views += 1
        name = f"fieldwise_{id(self)}_{self._views}"
        frame.createOrReplaceTempView(name)
        return self._con.table(name)


@contextmanager
def _this_python() -> Iterator[None]:
    """Lets executors run this interpreter, which has this library, unless PYSPARK_PYTHON names another."""
    if "PYSPARK_PYTHON" in os.environ:
        yield
        return
    os.environ["PYSPARK_PYTHON"] = sys.executable
    try:
        yield
    finally:
        del os.environ["PYSPARK_PYTHON"]


def _numbered(frame: Any, files: Files) -> Any:
    """Numbers rows in file order without sorting.

    Spark numbers rows within a task; another pass counts the rows of each file per task.
    """
    from pyspark.sql import functions as sql

    frame = frame.select(
        "*",
        sql.spark_partition_id().alias("__task"),
        sql.monotonically_increasing_id().alias("__id"),
        sql.input_file_name().alias("__path"),
    )
    order = {str(path.resolve()): index for index, path in enumerate(files.paths)}
    parts = frame.groupBy("__path", "__task").agg(sql.count("*").alias("n"), sql.min("__id").alias("first")).collect()
    parts.sort(key=lambda part: (order.get(_path(part["__path"]), 0), part["first"]))
    shifts, done = [], 0
    for part in parts:
        shifts.append((part["__path"], part["__task"], done - part["first"]))
        done += part["n"]
    known = frame.sparkSession.createDataFrame(shifts, "__path string, __task int, __shift bigint")
    joined = frame.join(sql.broadcast(known), ["__path", "__task"])
    return joined.withColumn(ROW, sql.col("__id") + sql.col("__shift")).drop("__task", "__id", "__path", "__shift")


def _path(uri: str) -> str:
    return unquote(urlparse(uri).path)
