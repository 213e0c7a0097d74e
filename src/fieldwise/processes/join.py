"""Connects the processes that torchrun or another launcher has started."""

import gc
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, TCPStore

from fieldwise.core.errors import ElsewhereError, FieldwiseError, SettingsError
from fieldwise.processes.failures import reason
from fieldwise.processes.ranks import Group, acting

TIMEOUT: Final = 300.0
"""Seconds without an answer after which a process is given up; the variable FIELDWISE_TIMEOUT sets another."""


def processes_here() -> int:
    """The number of processes that a launcher has started on this machine; 1 without one."""
    found = os.environ.get("LOCAL_WORLD_SIZE", "1")
    return max(1, int(found)) if found.isdecimal() else 1


@dataclass(frozen=True)
class Place:
    """What a launcher tells each process in its environment."""

    rank: int
    size: int
    local: int
    """The number of this process among those of its machine."""
    address: str
    port: int
    attempt: str
    """The number of restarts, which tells the values of a restart from earlier ones."""
    agent: bool
    """Whether the launcher keeps the store; else the first process does."""
    timeout: float

    @classmethod
    def of(cls, env: Mapping[str, str]) -> "Place":
        """The place that the variables of torchrun describe."""
        try:
            rank, size = int(env["RANK"]), int(env["WORLD_SIZE"])
            local, port = int(env.get("LOCAL_RANK", rank)), int(env["MASTER_PORT"])
            timeout = float(env.get("FIELDWISE_TIMEOUT", TIMEOUT))
            address = env["MASTER_ADDR"]
        except (KeyError, ValueError) as error:
            raise SettingsError(
                f"The variables of a launcher are incomplete or no numbers ({error}). RANK, WORLD_SIZE, MASTER_ADDR "
                "and MASTER_PORT are needed, and FIELDWISE_TIMEOUT is in seconds. Start with torchrun, which sets them."
            ) from error
        if not (0 <= rank < size and timeout > 0):
            raise SettingsError(
                f"RANK={rank}, WORLD_SIZE={size}, FIELDWISE_TIMEOUT={timeout:g}. Allowed: a rank from 0 to below the "
                "size, and a timeout above 0. Start with torchrun, which sets the first two."
            )
        agent = env.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
        return cls(rank, size, local, address, port, env.get("TORCHELASTIC_RESTART_COUNT", "0"), agent, timeout)


@contextmanager
def joined(env: Mapping[str, str] = os.environ) -> Iterator[Group]:
    """A context in which this process trains together with the others of its launcher.

    If processes fail, the first of them raises its error, and the others an `ElsewhereError`.
    """
    place = Place.of(env)
    group = _connected(place)
    try:
        with acting(group):
            yield group
    except BaseException as error:
        if isinstance(error, SystemExit) and not error.code:
            raise
        stopped = isinstance(error, KeyboardInterrupt)  # by a launcher, if another process failed
        if isinstance(error, ElsewhereError) or (group.has_failed() if stopped else not group.is_first_to_fail()):
            raise ElsewhereError("Another process failed first. Its message says why.") from error
        if isinstance(error, FieldwiseError) and group.rank:
            raise type(error)(f"{error} (Process {group.rank} of {group.size}, on {socket.gethostname()}.)") from error
        raise
    finally:
        with suppress(Exception):  # the connections may be gone
            dist.destroy_process_group()
        gc.collect()  # of models that hold the group: its threads end with it


def _connected(place: Place) -> Group:
    """Connects this process with the others."""
    # Optimizers import it later, and its default arguments would then keep the group. A group's threads may need Python
    # while it ends, which aborts the process.
    import torch.distributed.nn.functional

    gpus = torch.cuda.device_count()
    if gpus:
        torch.cuda.set_device(place.local % gpus)
    wait, group = timedelta(seconds=place.timeout), None
    try:
        server = not place.agent and place.rank == 0
        plain = TCPStore(place.address, place.port, place.size, server, wait, wait_for_workers=False)
        # a prefix per attempt: addresses of an earlier attempt would be tried, and refused
        store = PrefixStore(f"fieldwise-{place.attempt}", plain)
        group = Group(place.rank, place.size, store, place.timeout)
        backend = "cpu:gloo,cuda:nccl" if gpus >= processes_here() else "gloo"  # NCCL refuses to share a GPU
        dist.init_process_group(backend, store=store, rank=place.rank, world_size=place.size, timeout=wait)
        dist.all_reduce(torch.zeros(1))  # until all are connected: none fails while another still connects
    except (RuntimeError, ValueError) as error:
        if group and not group.is_first_to_fail():
            raise ElsewhereError("Another process failed first. Its message says why.") from error
        raise SettingsError(
            f"Process {place.rank} of {place.size} could not connect to the others at {place.address}:{place.port} "
            f"({reason(error)}). Every process must reach that address; GLOO_SOCKET_IFNAME names the network interface "
            "to use, such as eth0 or lo."
        ) from error
    return group
