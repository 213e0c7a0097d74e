"""Differences to the baseline, seed by seed, with their intervals."""

from collections.abc import Mapping, Sequence
from math import sqrt
from statistics import fmean, stdev
from typing import Any, Final

T_975: Final = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120,
    2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip
"""Student's t at 97.5% for 1 to 30 degrees of freedom; a page does not import scipy for them."""


def differences(cells: Sequence[Mapping[str, Any]], baseline: str) -> list[dict[str, Any]]:
    """Returns, per model, budget and method, the mean difference of test AUC to the baseline over common seeds.

    The 95% interval is that of the paired t-test; None for a single seed.
    """
    aucs: dict[tuple[str, str, str], dict[int, float]] = {}
    for cell in cells:
        key = cell["model"], cell["budget"], cell["method"]
        aucs.setdefault(key, {})[cell["seed"]] = cell["record"]["compact_test"]["auc"]
    found = []
    for (model, budget, method), own in aucs.items():
        base = aucs.get((model, budget, baseline), {})
        values = [auc - base[seed] for seed, auc in own.items() if seed in base]
        if method != baseline and values:
            place = {"model": model, "budget": budget, "method": method, "pairs": len(values)}
            found.append({**place, "value": fmean(values), **_ends(values)})
    return found


def _ends(values: Sequence[float]) -> dict[str, float | None]:
    if len(values) < 2:
        return {"low": None, "high": None}
    t = T_975[len(values) - 2] if len(values) - 2 < len(T_975) else 1.96
    half = t * stdev(values) / sqrt(len(values))
    return {"low": fmean(values) - half, "high": fmean(values) + half}
