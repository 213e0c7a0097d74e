"""Two ways to make the library's own models compact: the slices that a head declares, and the pruner of any module.

    python benchmarks/slices.py --out benchmarks/results/slices.json

Each model has 39 fields of 1,000 ids and 16 columns, of which a random quarter is kept. Times are the least of several
turns on one thread; the two compact models take turns.
"""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

import fieldwise as fw
from fieldwise.core.mask import Mask
from fieldwise.core.registry import resolve
from fieldwise.models import MODELS
from fieldwise.models.compact import compact
from fieldwise.pruning.folding import fold

FIELDS, IDS = 39, 1000


def main() -> None:
    """Measure all models and write a JSON file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--turns", type=int, default=15)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows = {name: measured(name, arguments.turns) for name in MODELS}
    arguments.out.write_text(json.dumps({"fields": FIELDS, "ids": IDS, "models": rows}, indent=1) + "\n")
    for name, row in rows.items():
        print(name, json.dumps(row))


def measured(name: str, turns: int) -> dict[str, Any]:
    """Return sizes, differences and seconds of one model."""
    torch.manual_seed(0)
    schema = fw.Schema(tuple(fw.Field(f"f{j}", IDS) for j in range(FIELDS)))
    model = resolve("model", MODELS, name)().new(schema).eval()
    kept = np.random.default_rng(0).permutation(model.layout.columns) < model.layout.columns // 4
    mask = Mask.of(model.layout, kept)
    ids = torch.randint(0, IDS, (256, FIELDS), dtype=torch.int32)
    masked = model(ids, torch.from_numpy(mask.vector).float()).detach()
    sliced, by_slices = timed(lambda: compact(model, mask), 3)
    pruner = fw.Pruner(model, (ids,), fw.searches.Magnitude())
    general, by_pruner = timed(lambda: pruner.compact(mask), 3)
    pruner.remove()
    folded = fold(general, (ids,))
    small = {"slices": sliced.eval(), "pruner": general.eval(), "pruner, folded": folded}
    scale = float(masked.abs().max())
    with torch.inference_mode():
        latency = {str(batch): turned(small, ids[:batch], turns) for batch in (1, 256)}
        difference = {kind: float((found(ids) - masked).abs().max()) / scale for kind, found in small.items()}
    return {
        "parameters": {kind: sum(p.numel() for p in found.parameters()) for kind, found in small.items()},
        "difference": difference,
        "seconds to compact": {"slices": by_slices, "pruner": by_pruner},
        "milliseconds": latency,
        "training step, milliseconds": turned(
            {kind: Step(found) for kind, found in small.items() if kind != "pruner, folded"}, ids, turns
        ),
    }


class Step:
    """One training step with Adam on a batch."""

    def __init__(self, model: Any) -> None:
        self._model = model.train()
        self._adam = torch.optim.Adam(model.parameters(), fused=True)

    def __call__(self, ids: torch.Tensor) -> None:
        """Take the step."""
        self._adam.zero_grad()
        self._model(ids).square().mean().backward()
        self._adam.step()


def timed(work: Callable[[], Any], turns: int) -> tuple[Any, float]:
    """Return the result, and the least seconds of several turns."""
    seconds = []
    for _ in range(turns):
        started = time.perf_counter()
        found = work()
        seconds.append(time.perf_counter() - started)
    return found, min(seconds)


def turned(calls: dict[str, Any], ids: torch.Tensor, turns: int) -> dict[str, float]:
    """Return the least milliseconds of each call; they take turns, so that other load affects all."""
    for call in calls.values():
        call(ids)
    found: dict[str, list[float]] = {kind: [] for kind in calls}
    for _ in range(turns):
        for kind, call in calls.items():
            _, seconds = timed(lambda call=call: call(ids), 5)
            found[kind].append(1000 * seconds)
    return {kind: min(each) for kind, each in found.items()}


if __name__ == "__main__":
    main()
