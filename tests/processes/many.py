"""Runs a function in several connected processes, forked from a server that has imported everything once."""

import multiprocessing
import os
import pickle
import signal
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from torch._C._distributed_c10d import TCPStore

from fieldwise.core.errors import FieldwiseError
from fieldwise.processes.join import joined

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["tests.processes.many", "fieldwise.pipeline.stages", "fieldwise.cli.app"])


def on_ranks(count: int, work: Callable[..., Any], *given: Any, **variables: str) -> list[Any]:
    """What `work` returns in each of `count` connected processes; an error of the library is returned, not raised."""
    return started(count, _joined, work, given, **variables)


def started(count: int, work: Callable[..., Any], *given: Any, **variables: str) -> list[Any]:
    """What `work` returns in each of `count` processes with the variables of a launcher."""
    store = TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False)
    shared = {
        "WORLD_SIZE": str(count),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(store.port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "FIELDWISE_TIMEOUT": "60",
        **variables,
    }
    ends, processes = [], []
    for rank in range(count):
        end, other = CONTEXT.Pipe()
        process = CONTEXT.Process(target=_child, args=(other, {**shared, "RANK": str(rank)}, work, given))
        process.start()
        other.close()
        ends.append(end)
        processes.append(process)
    found = [_received(end) for end in ends]
    for process in processes:
        process.join(60)
        if process.exitcode is None:
            process.kill()
            raise AssertionError("a process hangs")
    return found


def _received(end: Connection) -> Any:
    try:
        return pickle.loads(end.recv_bytes()) if end.poll(120) else "hangs"
    except EOFError:
        return "ended"


def _child(end: Connection, variables: dict[str, str], work: Callable[..., Any], given: tuple[Any, ...]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.environ.update(variables)
    end.send_bytes(pickle.dumps(work(*given)))  # plain: shared tensors would end with this process
    end.close()


def _joined(work: Callable[..., Any], given: tuple[Any, ...]) -> Any:
    try:
        with joined():
            return work(*given)
    except FieldwiseError as error:
        return error
