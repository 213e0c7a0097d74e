"""A training step as one CUDA graph: the GPU repeats it without being told each kernel anew."""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import torch
from torch import Tensor

WARM_UP: Final = 3
"""Steps that run as they are, so that all buffers exist before the recording."""

Step = Callable[..., Tensor]


class Captured:
    """Calls a step as it is at first, then records it once, and from then on replays the recording.

    The step must not wait for the GPU and must keep its state in the same tensors. Inputs of another shape than the
    recorded ones, as the last batch of an epoch has, run as they are.
    """

    def __init__(self, step: Step) -> None:
        self._step = step
        self._calls = 0
        self._graph: torch.cuda.CUDAGraph | None = None
        self._inputs: tuple[Tensor, ...] = ()
        self._output = torch.empty(0)

    def __call__(self, *inputs: Tensor) -> Tensor:
        """The step's result for these inputs."""
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
        """Runs on a stream of its own, as a recording demands of the steps before it."""
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            output = self._step(*inputs)
        torch.cuda.current_stream().wait_stream(stream)
        return output

    def _record(self, inputs: tuple[Tensor, ...]) -> None:
        self._inputs = tuple(given.clone() for given in inputs)
        self._graph = torch.cuda.CUDAGraph()
        with _no_garbage_collected(), torch.cuda.graph(self._graph):
            self._output = self._step(*self._inputs)


@contextmanager
def _no_garbage_collected() -> Iterator[None]:
    """While it lasts, Python's collector rests: an earlier recording that it happened to free would spoil this one."""
    resting = not gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if not resting:
            gc.enable()
