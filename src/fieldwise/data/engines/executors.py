"""Runs work in Spark's executors, and tells what they could not do in one line."""

import errno
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from fieldwise.core.errors import DataError, FieldwiseError
from fieldwise.core.files import full
from fieldwise.core.hints import either
from fieldwise.data.engines.engine import Done, Item, Result

_NOT_FOUND: Final = ("No such file", "does not exist", "ermission denied", "Mkdirs failed", "Read-only file system")
"""Words of Python and of Java for a folder that is not there or cannot be written."""

_PATIENCE: Final = 10
"""Seconds that stopped jobs get to end."""


def run(spark: Any, work: Callable[[Item, Done], Result], items: Sequence[Item], folder: Path) -> list[Result]:
    """Returns `work(item, ...)` of every item, in order: one task each; `folder` is where they write."""
    context = spark.sparkContext
    shared = context.broadcast((work, tuple(items)))

    def task(index: int) -> Any:
        work, items = shared.value
        return outcome(work, items[index])

    with telling(folder), stopping(spark):
        found = context.parallelize(range(len(items)), max(1, len(items))).map(task).collect()
    shared.destroy()
    return [_checked(one, folder) for one in found]


def outcome(work: Callable[[Any, Done], Any], item: Any) -> Any:
    """Runs in an executor. Returns an error that the user can fix, since Spark would try again and wrap it."""
    try:
        return work(item, lambda _: None)
    except (OSError, FieldwiseError) as error:
        return error


def _checked(found: Any, folder: Path) -> Any:
    if isinstance(found, OSError):
        if full(found):
            raise found
        raise not_shared(folder, str(found)) from found
    if isinstance(found, FieldwiseError):
        raise found
    return found


@contextmanager
def stopping(spark: Any) -> Iterator[None]:
    """Stops the jobs of the block if it is left by an error or a signal, and waits until they no longer write."""
    context, tag = spark.sparkContext, f"fieldwise-{uuid4().hex}"
    context.addJobTag(tag)
    context.setInterruptOnCancel(True)
    try:
        yield
    except BaseException:
        with suppress(Exception):  # the connection may be interrupted too
            context.cancelJobsWithTag(tag)
            tracker, end = context.statusTracker(), time.monotonic() + _PATIENCE
            while (tracker.getActiveJobsIds() or tracker.getActiveStageIds()) and time.monotonic() < end:
                time.sleep(0.05)
        raise
    finally:
        with suppress(Exception):
            context.removeJobTag(tag)


@contextmanager
def telling(folder: Path) -> Iterator[None]:
    """Turns a failed Spark job into one line; `folder` is where it writes."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError, ConnectionError) as error:
        reason = full(error)
        if reason:
            raise OSError(errno.ENOSPC, reason) from error
        reason = cause(error)
        if any(words in reason for words in _NOT_FOUND):
            raise not_shared(folder, reason) from error
        raise DataError(
            f"Spark stopped ({reason}). Its executors need enough memory, '{folder}', and this library in their Python "
            "(PYSPARK_PYTHON). Check them, then run the same command again."
        ) from error


def cause(error: Exception) -> str:
    """Returns the line of a Spark error that says what happened: the last exception, in Python or in Java."""
    text = str(error)
    found: list[str] = re.findall(r"^(?:Caused by: |: )?([\w.]*(?:Error|Exception)\b: .+)$", text, re.MULTILINE)
    return next(iter([*found[-1:], *text.strip().splitlines(), "no reason given"]))[:300].rstrip(".")


def not_shared(folder: Path, reason: str) -> DataError:
    """Returns the error for a folder that executors cannot use."""
    return DataError(
        f"Spark's executors cannot use '{folder}' ({reason}). Allowed: a folder that every machine of the cluster can "
        f"read and write. Choose another {either('--out (for `check`: TMPDIR)', 'out (for fw.check: TMPDIR)')}."
    )
