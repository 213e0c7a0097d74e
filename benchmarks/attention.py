"""Times a training step of AutoInt's head on a CPU: by the library's attention layers, or by torch's operations.

    python benchmarks/attention.py

A step is a forward and a backward pass of the head with its default sizes. Both ways take turns, and each counts with
its fastest of several rounds.
"""

from collections.abc import Callable
from typing import Final

import torch
from lift import seconds

from fieldwise.core.schema import Schema
from fieldwise.models import autoint
from fieldwise.models.attention import FEWEST
from fieldwise.models.attention_few import WIDEST

ROUNDS: Final = 5
WIDTH: Final = 16
ROWS: Final = 2048
FIELDS: Final = (7, 15, 39)
"""Those of MovieLens-1M, the most without a layer for many fields, and those of Criteo."""
OWN: Final = {"FEWEST": FEWEST, "WIDEST": WIDEST}
PLAIN: Final = {"FEWEST": 2**62, "WIDEST": 0}


def main() -> None:
    """Prints a table: the library's layers are the default."""
    print("| fields | threads | torch's operations, ms | own layers, ms | ratio |")
    print("|---|---|---|---|---|")
    for fields in FIELDS:
        torch.manual_seed(0)
        layout = Schema.of(**{f"f{j}": 2 for j in range(fields)}).layout(WIDTH)
        head = autoint.AutoInt().head(layout).train()
        v, coming = torch.randn(ROWS, layout.columns, requires_grad=True), torch.randn(ROWS)

        def step(v: torch.Tensor = v, coming: torch.Tensor = coming, head: torch.nn.Module = head) -> None:
            torch.autograd.grad(head(v), [v, *head.parameters()], coming)

        for threads in (1, 2):
            torch.set_num_threads(threads)
            plain = own = float("inf")
            for _ in range(ROUNDS):
                plain = min(plain, _timed(step, PLAIN))
                own = min(own, _timed(step, OWN))
            print(f"| {fields} | {threads} | {1000 * plain:.1f} | {1000 * own:.1f} | {own / plain:.2f} |")


def _timed(step: Callable[[], None], limits: dict[str, int]) -> float:
    """The seconds of a step while the head chooses its layers by these limits."""
    for name, limit in limits.items():
        setattr(autoint, name, limit)
    return seconds(step)


if __name__ == "__main__":
    main()
