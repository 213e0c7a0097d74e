"""The headline of a run, readable without knowledge of the method."""

from collections.abc import Sequence
from statistics import fmean

from fieldwise.core.baselines import BaselineRecord
from fieldwise.core.records import RunRecord
from fieldwise.reports.run.verdict import by_budget, change, judged, total

CLOSE = 0.001
"""Validation AUCs within this distance of the best count as equally good in the headline."""
ITEM = 4
"""Bytes per parameter (float32)."""


def chosen(records: Sequence[RunRecord]) -> list[RunRecord]:
    """Returns the records of the smallest model whose validation AUC is within `CLOSE` of the best."""
    groups = by_budget(records)
    best = max(fmean(r.compact_valid.auc for r in group) for group in groups.values())
    good = [group for group in groups.values() if fmean(r.compact_valid.auc for r in group) >= best - CLOSE]
    return min(good, key=lambda group: fmean(total(r.compact_size) for r in group))


def sentence(group: Sequence[RunRecord], baselines: BaselineRecord | None = None) -> str:
    """Describes sizes and test metrics of one budget, averaged over its seeds, beside the baselines."""
    *simple, full, small = judged(group, baselines)
    assert full.embedding is not None
    assert full.total is not None
    assert small.embedding is not None
    assert small.total is not None
    found = change(group)
    lines = [
        f"With a budget of {group[0].budget} the embedding tables shrink from {size(full.embedding)} to "
        f"{size(small.embedding)} ({_fewer(full.embedding, small.embedding)}), the whole model from "
        f"{size(full.total)} to {size(small.total)} ({_fewer(full.total, small.total)}).",
        f"Its test AUC is {small.auc.text()}, {_against(found.auc.value)} the full model's {full.auc.value:.4f}; its "
        f"log loss is {small.log_loss.text()}, {_against(found.log_loss.value)} the full model's "
        f"{full.log_loss.value:.4f}.",
    ]
    if simple:
        others = (
            f"a {model.name} has AUC {model.auc.value:.4f} and log loss {model.log_loss.value:.4f}"
            for model in reversed(simple)
        )
        text = ", ".join(others)
        lines.append(f"{text[0].upper()}{text[1:]}.")
    seeds = f"Mean of {len(group)} seeds" if len(group) > 1 else "One seed"
    intervals = f"; in parentheses: 95% intervals from the {group[0].compact_test.rows:,} test rows"
    both = " and the seeds" if len(group) > 1 else ""
    lines.append(f"{seeds}{intervals + both if small.auc.error is not None else ''}.")
    return " ".join(lines)


def _fewer(before: float, after: float) -> str:
    return f"{1 - after / before:.0%} fewer parameters" if before else "no parameters"


def _against(difference: float) -> str:
    if abs(difference) < 5e-5:
        return "the same as"
    return f"{abs(difference):.4f} {'above' if difference > 0 else 'below'}"


def size(parameters: float) -> str:
    """Formats the stored size of a number of float32 parameters."""
    amount = parameters * ITEM
    for unit in ("bytes", "KiB", "MiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "bytes" or amount >= 100 else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} GiB"
