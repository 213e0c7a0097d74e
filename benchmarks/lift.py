"""Times a lift of fields of many widths on one CPU core: padded and all together, or width by width.

    python benchmarks/lift.py

A step is a forward and a backward pass. Both ways take turns, and each counts with its fastest of several rounds.
"""

import random
import time
from collections.abc import Callable
from typing import Final

import torch

from fieldwise.core.schema import Layout, Schema
from fieldwise.models import layers
from fieldwise.tables.embedding import runs

ROUNDS: Final = 9
STEPS: Final = 40
COMMON: Final = 16
BATCHES: Final = (128, 512, 2048)
FIELDS: Final = (6, 12, 39)


def seconds(step: Callable[[], None]) -> float:
    """The mean over some steps."""
    started = time.perf_counter()
    for _ in range(STEPS):
        step()
    return (time.perf_counter() - started) / STEPS


def main() -> None:
    """Prints a table: the default is padding up to `layers.PADDED` numbers per batch, unless few runs are skewed."""
    torch.set_num_threads(1)
    draw = random.Random(0)
    layouts = [tuple(draw.randint(0, COMMON) for _ in range(fields)) for fields in FIELDS]
    layouts += [(*((1,) * many + (2,) * many) * (19 // many), COMMON) for many in (1, 4, 19)]  # one field is wide
    print("| fields | runs | padded, per column | rows | width by width, ms | padded, ms | ratio |")
    print("|---|---|---|---|---|---|---|")
    for widths in layouts:
        fields = len(widths)
        lift = layers.Lift(Layout(Schema.of(**{f"f{j}": 2 for j in range(fields)}), widths), COMMON)
        lift._gains = True
        for rows in BATCHES:
            v, coming = torch.randn(rows, sum(widths), requires_grad=True), torch.randn(rows, fields, COMMON)

            def step(v: torch.Tensor = v, coming: torch.Tensor = coming, lift: layers.Lift = lift) -> None:
                torch.autograd.grad(lift(v), [v, lift.weight], coming)

            best = {0: float("inf"), 2**62: float("inf")}
            for _ in range(ROUNDS):
                for most in best:
                    layers.PADDED = most  # type: ignore[misc]
                    best[most] = min(best[most], seconds(step))
            apart, padded = (1000 * found for found in best.values())
            of_layout = f"{fields} | {len(runs(widths))} | {fields * max(widths) / sum(widths):.1f}"
            print(f"| {of_layout} | {rows:,} | {apart:.2f} | {padded:.2f} | {padded / apart:.2f} |")


if __name__ == "__main__":
    main()
