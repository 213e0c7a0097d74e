"""What errors of torch say about the connections between processes."""

import re
from typing import Final

import torch.distributed as dist

_CONNECTION: Final = re.compile(r"gloo|nccl|connection|peer|socket|timed out|timeout", re.IGNORECASE)


def reason(error: BaseException) -> str:
    """The first sentence of an error of torch, without the place in its source."""
    line = re.sub(r"^\[[^]]*\]\s*", "", str(error).strip().split("\n")[0])
    return line.split(". ")[0][:200]


def is_of_connection(error: BaseException) -> bool:
    """Whether an error is of a connection between processes; those of gloo are known by their text only."""
    known = isinstance(error, OSError | EOFError | dist.DistError)
    return known or _CONNECTION.search(str(error)) is not None
