"""The table of `fieldwise bench-serve`."""

from collections.abc import Iterator
from typing import Any, Final

HEADS: Final = ("model", "tables", "runtime", "disk", "process", "model", "ms: 1 row", "256 rows", "4096 rows")
"""Sizes are in MiB, times p50 / p99 in milliseconds."""


def serving_rows(bench: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    """Yields one table row per model and runtime, and the ratios of full to compact for each runtime."""
    cells = bench["cells"]
    for runtime in dict.fromkeys(cell["runtime"] for cell in cells):
        own = [cell for cell in cells if cell["runtime"] == runtime]
        for cell in own:
            sizes = (f"{size / 2**20:.1f}" for size in _sizes(cell))
            times = (f"{entry['p50']:.3g} / {entry['p99']:.3g}" for entry in cell["measured"]["latencies"])
            yield (cell["model"], cell.get("store", "float32"), runtime, *sizes, *times)
        full, compact = own[:2]
        ratios = (f"{a / b:.1f} x" for a, b in zip(_sizes(full), _sizes(compact), strict=True))
        pairs = zip(full["measured"]["latencies"], compact["measured"]["latencies"], strict=True)
        yield ("ratio", "", runtime, *ratios, *(f"{a['p50'] / b['p50']:.1f} x" for a, b in pairs))


def _sizes(cell: dict[str, Any]) -> tuple[int, int, int]:
    return cell["disk"], cell["measured"]["resident"], cell["measured"]["model"]
