"""Runs commands in forks of one process that has imported everything: milliseconds per case, not seconds.

A job is one line of JSON on standard input, its outcome one line on the original standard output. The process itself
starts no thread and opens no engine, so that every fork starts clean.
"""

import gc
import json
import os
import resource
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any, Final, NoReturn

ALIVE_S: Final = 0.002
"""Seconds between two polls of a child."""


def serve() -> None:
    """Answers jobs until standard input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    _import_all()
    gc.freeze()  # a fork then copies fewer pages
    for line in sys.stdin:
        print(json.dumps(outcome(json.loads(line))), file=answers, flush=True)


def _import_all() -> None:
    import duckdb  # noqa: F401
    import ibis.backends.duckdb  # noqa: F401
    import pandas  # noqa: F401
    import pyarrow.dataset  # noqa: F401
    import torch
    import torch._dynamo  # an optimizer and the meta device import it when first used: a second for each fork

    import fieldwise.cli.app
    import fieldwise.comparison.results
    import fieldwise.exports.predict
    import fieldwise.exports.targets
    import fieldwise.models.check
    import fieldwise.pipeline.stages
    import fieldwise.reports.run.watch  # noqa: F401
    from fieldwise.core.registry import resolve
    from fieldwise.data import SOURCES
    from fieldwise.data.engines import ENGINES
    from fieldwise.models import MODELS
    from fieldwise.searches import SEARCHES

    for table in (SOURCES, ENGINES, MODELS, SEARCHES):
        for name in table:
            resolve("fuzz", table, name)
    torch.set_num_threads(1)


def outcome(job: dict[str, Any]) -> dict[str, Any]:
    """Runs one job in a fork, within its limits of time and memory."""
    size, resident = (int(word) * resource.getpagesize() for word in Path("/proc/self/statm").read_text().split()[:2])
    start = time.monotonic()
    child = os.fork()
    if child == 0:
        _work(job, size)
    status, usage, hung = _wait(child, start + job["seconds"])
    return {
        "code": os.waitstatus_to_exitcode(status),
        "hung": hung,
        "seconds": time.monotonic() - start,
        "memory": max(0, usage.ru_maxrss * 1024 - resident),
    }


def _wait(child: int, until: float) -> tuple[int, resource.struct_rusage, bool]:
    """Waits for the child; kills it and its process group when its time is over."""
    hung = False
    while True:
        done, status, usage = os.wait4(child, os.WNOHANG)
        if done:
            _kill(child)  # processes that it left behind
            return status, usage, hung
        if not hung and time.monotonic() > until:
            hung = True
            _kill(child)
        time.sleep(ALIVE_S)


def _kill(group: int) -> None:
    try:
        os.killpg(group, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return


def _work(job: dict[str, Any], size: int) -> NoReturn:
    code = 1
    try:
        os.setsid()
        os.chdir(job["folder"])
        for descriptor, name in ((1, job["stdout"]), (2, job["stderr"])):
            os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), descriptor)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_AS, (size + job["memory"], size + job["memory"]))
        os.environ["TMPDIR"] = job["folder"]
        code = _call(job)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _call(job: dict[str, Any]) -> int:
    """Runs the command through the entry point of the console script, and returns its exit code."""
    if "build" in job:
        from tests.fuzz.base import build

        build(Path(job["build"]), job["model"])
        return 0
    from fieldwise.cli import main

    sys.argv = ["fieldwise", *job["arguments"]]
    try:
        main()
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)


if __name__ == "__main__":
    serve()
