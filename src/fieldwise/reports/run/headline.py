"""The headline of a run, readable without knowledge of the method."""

from collections.abc import Sequence
from statistics import fmean

from fieldwise.core.records import RunRecord, Size

CLOSE = 0.001
"""Validation AUCs within this distance of the best count as equally good in the headline."""
ITEM = 4
"""Bytes per parameter (float32)."""


def chosen(records: Sequence[RunRecord]) -> list[RunRecord]:
    """Returns the records of the smallest model whose validation AUC is within `CLOSE` of the best."""
    groups: dict[str, list[RunRecord]] = {}
    for record in records:
        groups.setdefault(record.budget, []).append(record)
    best = max(fmean(r.compact_valid.auc for r in group) for group in groups.values())
    good = [group for group in groups.values() if fmean(r.compact_valid.auc for r in group) >= best - CLOSE]
    return min(good, key=lambda group: fmean(total(r.compact_size) for r in group))


def sentence(group: Sequence[RunRecord]) -> str:
    """Describes the size and test AUC of one budget, averaged over its seeds."""
    before = fmean(total(r.full_size) for r in group)
    after = fmean(total(r.compact_size) for r in group)
    full, small = (fmean(aucs) for aucs in zip(*((r.full_test.auc, r.compact_test.auc) for r in group), strict=True))
    change = small - full
    verdict = "the same as" if abs(change) < 5e-5 else f"{abs(change):.4f} {'above' if change > 0 else 'below'}"
    seeds = f" (mean of {len(group)} seeds)" if len(group) > 1 else " (one seed)"
    return (
        f"With a budget of {group[0].budget} the model shrinks from {size(before)} to {size(after)} "
        f"({int(before + 0.5):,} to {int(after + 0.5):,} parameters, {1 - after / before:.0%} fewer). "
        f"Its test AUC is {small:.4f}, {verdict} the full model's {full:.4f}{seeds}."
    )


def total(size: Size) -> int:
    """Returns the number of parameters of a model."""
    return size.embedding + size.first_order + size.dense


def size(parameters: float) -> str:
    """Formats the stored size of a number of float32 parameters."""
    amount = parameters * ITEM
    for unit in ("bytes", "KiB", "MiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "bytes" or amount >= 100 else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} GiB"
