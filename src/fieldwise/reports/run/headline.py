"""The headline of a run, readable without knowledge of the method."""

from collections.abc import Callable, Sequence
from statistics import fmean

from fieldwise.core.baselines import BaselineRecord
from fieldwise.core.records import Bytes, RunRecord
from fieldwise.reports.run.verdict import by_budget, change, judged

CLOSE = 0.001
"""Validation AUCs within this distance of the best count as equally good in the headline."""


def chosen(records: Sequence[RunRecord]) -> list[RunRecord]:
    """Returns the records of the model with the fewest bytes whose validation AUC is within `CLOSE` of the best."""
    groups = by_budget(records)
    best = max(fmean(r.compact_valid.auc for r in group) for group in groups.values())
    good = [group for group in groups.values() if fmean(r.compact_valid.auc for r in group) >= best - CLOSE]
    return min(good, key=lambda group: fmean(r.stored_sizes[1].weights for r in group))


def sentence(group: Sequence[RunRecord], baselines: BaselineRecord | None = None) -> str:
    """Describes sizes and test metrics of one budget, averaged over its seeds, beside the baselines."""
    *simple, full, small = judged(group, baselines)
    found = change(group)
    lines = [
        *_sizes(group),
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


def _sizes(group: Sequence[RunRecord]) -> list[str]:
    """Describes stored bytes before and after, part by part."""
    sizes = [record.stored_sizes for record in group]
    store = " or ".join(dict.fromkeys(record.store for record in group))
    parts: dict[str, Callable[[Bytes], int]] = {
        "embedding tables shrink": lambda one: one.tables,
        "first-order weights": lambda one: one.first_order,
        "dense layers": lambda one: one.dense,
        "whole model": lambda one: one.weights,
    }
    texts = []
    for name, part in parts.items():
        before, after = (fmean(part(pair[place]) for pair in sizes) for place in (0, 1))
        fewer = f" ({1 - after / before:.0%} fewer bytes)" if before and name.startswith(("embedding", "whole")) else ""
        if before:
            texts.append(f"the {name} from {size(before)} to {size(after)}{fewer}")
    lines = [f"With a budget of {group[0].budget} {', '.join(texts)}."]
    if store != "float32":
        scales = fmean(small.scales for _, small in sizes)
        included = f", including {size(scales)} of scales" if scales else ""
        lines.append(f"Tables are stored as {store} instead of float32{included}.")
    return lines


def _against(difference: float) -> str:
    if abs(difference) < 5e-5:
        return "the same as"
    return f"{abs(difference):.4f} {'above' if difference > 0 else 'below'}"


def size(amount: float) -> str:
    """Formats a number of bytes."""
    for unit in ("bytes", "KiB", "MiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "bytes" or amount >= 100 else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} GiB"
