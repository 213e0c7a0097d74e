"""Ways to sum the gradients of a table's rows on a GPU, for gpu.py."""

from collections.abc import Callable

import numpy as np
import torch
from encoded_rows import SHAPES
from numpy.typing import NDArray

from fieldwise.kernels import tables
from fieldwise.tables import deterministic_sum


def ways_of_summing(ids: NDArray[np.int32], width: int) -> dict[str, float]:
    """Returns the milliseconds of a table's gradient for rows of Criteo's shape, summed in four ways."""
    counts = np.array(SHAPES["criteo"].cardinalities)
    rows = torch.from_numpy((ids + counts.cumsum() - counts).astype(np.int32)).cuda().flatten()
    count, values = int(counts.sum()), torch.randn(len(rows), width, device="cuda")
    flat, ends, sums = rows, torch.zeros(count, dtype=torch.int32, device="cuda"), torch.empty_like(values)

    def in_order() -> torch.Tensor:
        ascending, order = torch.sort(flat, stable=True)
        tables.find_ends(ascending, ends)
        tables.pieces(values, ascending, order, sums)
        return sums

    ways: dict[str, Callable[[], torch.Tensor]] = {
        "sorted, by torch": lambda: torch.ops.aten.embedding_dense_backward(values, rows, count, -1, False),
        "sorted once, in pieces": in_order,
        "in whole numbers": lambda: deterministic_sum.sums(values, rows, count),
        "floats in any order": lambda: torch.zeros(count, width, device="cuda").index_add_(0, rows, values),
    }
    return {name: round(timed(way), 4) for name, way in ways.items()}


def timed(work: Callable[[], torch.Tensor], times: int = 50) -> float:
    """Returns the milliseconds of some kernels, recorded once and replayed."""
    for _ in range(3):
        work()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    graph.replay()
    began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    began.record()
    for _ in range(times):
        graph.replay()
    ended.record()
    torch.cuda.synchronize()
    return float(began.elapsed_time(ended)) / times
