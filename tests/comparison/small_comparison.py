"""A comparison that takes seconds, and what two of them must have in common."""

from typing import Any

from fieldwise.comparison.settings import CompareSettings
from fieldwise.core.comparison import Comparison

SMALL: dict[str, Any] = {
    "run": {"budgets": ["5 columns", "40% parameters"], "seeds": [0, 1], "device": "cpu"},
    "data": {"name": "planted", "rows": 4000},
    "model": {"width": 4},
    "pretrain": {"batch": 512, "epochs": 2, "learning_rate": 0.02},
    "retrain": {"batch": 512, "epochs": 2, "distil": 0.0},
    "compare": {"models": ["dcnv2", "small-fm"], "methods": ["ham", "mde", "rms", "uniform"]},
    "models": {"small-fm": {"name": "fm", "common": 4}},
    "methods": {"ham": {"batch": 512, "epochs": 2}, "rms": {"name": "magnitude", "form": "rms"}},
}


def settings(**changes: dict[str, Any]) -> CompareSettings:
    names = SMALL.keys() | changes.keys()
    return CompareSettings.parse({name: {**SMALL.get(name, {}), **changes.get(name, {})} for name in names})


def figures(found: Comparison) -> list[Any]:
    """Everything except times and memory."""
    cells = []
    for cell in found.cells:
        record = cell.record.to_json() if cell.record else {}
        record = {k: v for k, v in record.items() if k not in ("seconds", "peak_memory")}
        cells.append((cell.model, cell.method, cell.budget, cell.seed, cell.state, cell.error, record))
    rows = [(r.model, r.budget, r.method, r.auc, r.auc_std, r.embedding, r.test, r.front) for r in found.rows]
    return [cells, rows]
