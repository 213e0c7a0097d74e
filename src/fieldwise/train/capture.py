"""A training step as a CUDA graph, which replays all kernels with one launch."""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Final

import torch
from torch import Tensor

from fieldwise.tables.beside import URGENT

WARM_UP: Final = 3
"""Steps that run without capture first, so that all buffers exist."""

Step = Callable[..., Tensor]


class Captured:
    """Runs a step directly at first, then captures it once, and replays the graph from then on.

    The step must not synchronize with the GPU and must keep its state in the same tensors. Inputs with a different
    shape than the captured ones, such as the last batch of an epoch, run directly.
    """

    def __init__(self, step: Step) -> None:
        self._step = step
        self._calls = 0
        self._graph: torch.cuda.CUDAGraph | None = None
        self._inputs: tuple[Tensor, ...] = ()
        self._output = torch.empty(0)

    def __call__(self, *inputs: Tensor) -> Tensor:
        """Run the step on these inputs and return its result."""
        if self._graph is None:
            self._calls += 1
            if self._calls <= WARM_UP:
                return self._aside(*inputs)
            self._record(inputs)
        if any(mine.shape != given.shape for mine, given in zip(self._inputs, inputs, strict=True)):
            return self._step(*inputs)
        for mine, given in zip(self._inputs, inputs, strict=True):
            mine.copy_(given)
        assert self._graph is not None
        self._graph.replay()
        return self._output

    def _aside(self, *inputs: Tensor) -> Tensor:
        """Run on a side stream, which CUDA requires of the steps before a capture."""
        stream = _side_stream(torch.cuda.current_device())
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            output = self._step(*inputs)
        torch.cuda.current_stream().wait_stream(stream)
        return output

    def _record(self, inputs: tuple[Tensor, ...]) -> None:
        self._inputs = tuple(given.clone() for given in inputs)
        self._graph = torch.cuda.CUDAGraph()
        stream = _side_stream(torch.cuda.current_device())
        with _no_garbage_collected(), torch.cuda.graph(self._graph, stream=stream):
            self._output = self._step(*self._inputs)


@cache
def _side_stream(device: int) -> torch.cuda.Stream:
    """The only side stream of a device: every stream with a matrix product keeps a workspace until the process ends."""
    return torch.cuda.Stream(device, priority=URGENT)


@contextmanager
def _no_garbage_collected() -> Iterator[None]:
    """Disable garbage collection: freeing an earlier graph would invalidate the capture."""
    disabled = not gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if not disabled:
            gc.enable()
