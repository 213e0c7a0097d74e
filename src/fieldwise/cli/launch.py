"""Starts a command in several processes: on this machine, or on the executors of a Spark cluster."""

import logging
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final
from uuid import uuid4

import tomli_w

from fieldwise.cli.many import started
from fieldwise.core.errors import DataError, ElsewhereError, FieldwiseError, RunError, SettingsError
from fieldwise.core.files import write_text

if TYPE_CHECKING:
    from fieldwise.pipeline.settings import RunSettings

FAILURE: Final = ".failure"
"""File of the run folder in which a process on a cluster leaves its error, which Spark does not pass on."""
SETTINGS: Final = ".processes.toml"
"""File of the run folder from which the processes on a cluster read their settings."""


def in_processes(count: int, settings: "RunSettings", out: Path, more: Sequence[str] = ()) -> None:
    """Runs this process's command in several others, with further flags, and exits with their code unless it is 0."""
    from fieldwise.data.engines.spark import Spark

    if started():
        raise SettingsError(
            f"--processes {count} starts processes, and a launcher such as torchrun has done so already. Use one of "
            "the two."
        )
    engine = settings.engine
    if not isinstance(engine, Spark):
        _here(count, without(sys.argv[1:], "--processes"))
        return
    from fieldwise.pipeline.stages import prepare

    out = out.absolute()  # tasks work in other folders
    dataset = settings.run.dataset.absolute() if settings.run.dataset else prepare(settings, out / "dataset").folder
    settings = replace(settings, run=settings.run.model_copy(update={"dataset": dataset}))
    _on_spark(count, settings, engine.master, out, more)


def without(words: Sequence[str], flag: str) -> list[str]:
    """The words of a command without a flag and its value."""
    found, skip = [], False
    for word in words:
        if not skip and word != flag and not word.startswith(f"{flag}="):
            found.append(word)
        skip = not skip and word == flag
    return found


def _here(count: int, words: Sequence[str]) -> None:
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // count)))
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=count,
        run_id=uuid4().hex,
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        max_restarts=0,
    )
    logging.disable(logging.ERROR)  # the launcher's own account of a failure, which a process has told in one line
    try:
        elastic_launch(config, sys.executable)("-m", "fieldwise", *words)
    except ChildFailedError as error:
        code = error.get_first_failure()[1].exitcode
        sys.exit(code if code > 0 else 128 - code)
    except SignalException as error:
        sys.exit(128 + error.sigval)
    finally:
        logging.disable(logging.NOTSET)


def _on_spark(count: int, settings: "RunSettings", master: str, out: Path, more: Sequence[str]) -> None:
    """Prepares the rows on the cluster first, because its tasks cannot start a session of their own."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    try:
        from pyspark.ml.torch.distributor import TorchDistributor
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise DataError(
            f"--processes on Spark needs pyspark ({error}). Run: pip install 'fieldwise[spark]'."
        ) from error
    SparkSession.builder.master(master).appName("fieldwise").getOrCreate()
    left = [out / FAILURE, out / SETTINGS]
    write_text(out / SETTINGS, tomli_w.dumps(settings.values()))
    try:
        words = ["run", str(out / SETTINGS), "--out", str(out), *more]
        TorchDistributor(num_processes=count, local_mode=False, use_gpu=False).run(command, out, *words)
    except Exception as error:
        if not (out / FAILURE).exists():
            raise RunError(f"The processes on Spark failed ({str(error).strip().splitlines()[-1]:.200}).") from error
        raise RunError((out / FAILURE).read_text(encoding="utf-8")) from error
    finally:
        for path in left:
            path.unlink(missing_ok=True)


def command(out: Path, *words: str) -> None:
    """Runs a command as one of several processes, and leaves its error in the run folder."""
    from fieldwise.cli.app import app
    from fieldwise.cli.many import together

    sys.argv = ["fieldwise", *words]
    try:
        with together(words[0]):
            app()
    except ElsewhereError:
        raise
    except FieldwiseError as error:
        write_text(out / FAILURE, str(error))
        raise
    except SystemExit as stop:
        if stop.code:
            raise
