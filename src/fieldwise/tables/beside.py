"""Kernels that run beside others in a captured step."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Final

import torch
from torch import Tensor

URGENT: Final = -1
"""Priority of streams that others wait for; 0 is the lowest."""


class Beside:
    """A place for work that the following kernels do not wait for, until `join`.

    Only a captured graph has one; elsewhere the work is done in its order, because memory that is freed there may be
    reused while the other stream still reads it. Places of one name have one stream. Without `urgent`, its kernels'
    waiting blocks let those of all others go first.
    """

    def __init__(self, name: str, urgent: bool = True) -> None:
        self._name, self._urgent = name, urgent
        self._stream: torch.cuda.Stream | None = None

    @contextmanager
    def __call__(self, *reads: Tensor) -> Iterator[None]:
        """A block of work that begins when all before it has ended, and the tensors that it reads."""
        if not (reads[0].is_cuda and torch.cuda.is_current_stream_capturing()):
            yield
            return
        self._stream = _stream(self._name, reads[0].device, URGENT if self._urgent else 0)
        self._stream.wait_stream(torch.cuda.current_stream())
        for tensor in reads:
            tensor.record_stream(self._stream)  # its memory is not reused before the work has ended
        with torch.cuda.stream(self._stream):
            yield

    def join(self, *made: Tensor) -> None:
        """Lets what follows wait for the work, and read the tensors that it made."""
        if self._stream is None:
            return
        torch.cuda.current_stream().wait_stream(self._stream)
        for tensor in made:
            tensor.record_stream(torch.cuda.current_stream())
        self._stream = None


@cache
def _stream(_name: str, device: torch.device, priority: int) -> torch.cuda.Stream:
    """The stream of a name: a new one per training would keep the workspace of its matrix products until the end."""
    return torch.cuda.Stream(device, priority=priority)
