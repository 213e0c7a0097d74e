"""Computes the rows of a comparison from its cells: means, deviations, paired tests, corrections, Pareto front."""

import warnings
from collections.abc import Iterable, Sequence
from statistics import fmean, stdev
from typing import Any

import numpy as np
from scipy import stats

from fieldwise.core.comparison import CellRecord, Comparison, Full, PairedTest, Row
from fieldwise.core.records import Bytes, Metrics, RunRecord

Key = tuple[str, str, str]
"""Model, budget, method."""


def summarize(cells: Sequence[CellRecord], baseline: str, jobs: int, settings: dict[str, Any]) -> Comparison:
    """Returns the comparison of these cells."""
    groups: dict[Key, list[CellRecord]] = {}
    for cell in cells:
        if cell.record is not None:
            groups.setdefault((cell.model, cell.budget, cell.method), []).append(cell)
    tests = _tests(groups, baseline)
    full = [found for model in dict.fromkeys(key[0] for key in groups) for found in _fulls(model, groups)]
    rows = [_row(key, group, tests.get(key)) for key, group in groups.items()]
    return Comparison(
        settings=settings,
        jobs=jobs,
        baseline=baseline,
        comparisons=len(tests),
        full=full,
        rows=[row.model_copy(update={"front": on_front(row, rows, full)}) for row in rows],
        cells=list(cells),
    )


def paired(differences: Sequence[float]) -> tuple[float, float]:
    """Returns the two-sided p-values of the paired t-test and Wilcoxon's signed-rank test; 1 if nothing differs."""
    values = np.asarray(differences, dtype=np.float64)
    if not values.any():
        return 1.0, 1.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # if all differences are equal, the t-test warns and returns p = 0
        t = float(stats.ttest_1samp(values, 0.0).pvalue)
    return t, float(stats.wilcoxon(values, method="auto").pvalue)


def holm(values: Sequence[float]) -> list[float]:
    """Returns p-values after Holm's step-down correction, in the given order."""
    result, running = [0.0] * len(values), 0.0
    for rank, place in enumerate(sorted(range(len(values)), key=lambda i: values[i])):
        running = max(running, min(1.0, (len(values) - rank) * values[place]))
        result[place] = running
    return result


def on_front(row: Row, rows: Sequence[Row], full: Sequence[Full]) -> bool:
    """Returns whether no point of the row's model dominates it: no worse in AUC and size, and better in one."""
    points = [(_stored(r), r.auc) for r in rows if r.model == row.model]
    points += [(_stored(f), f.auc) for f in full if f.model == row.model]
    own = _stored(row)
    return not any(e <= own and a >= row.auc and (e < own or a > row.auc) for e, a in points)


def _stored(row: Row | Full) -> float:
    """Returns the stored bytes of a row; of older records, those of its embedding in float32."""
    return 4 * row.embedding if row.bytes is None else row.bytes


def _tests(groups: dict[Key, list[CellRecord]], baseline: str) -> dict[Key, PairedTest]:
    """Returns a test for each row except the baseline's, if it shares at least two seeds with the baseline."""
    found: dict[Key, tuple[list[float], tuple[float, float]]] = {}
    for key, group in groups.items():
        model, budget, method = key
        base = {cell.seed: _record(cell) for cell in groups.get((model, budget, baseline), [])}
        pairs = [(_record(cell), base[cell.seed]) for cell in group if cell.seed in base]
        if method != baseline and len(pairs) > 1:
            differences = [a.compact_test.auc - b.compact_test.auc for a, b in pairs]
            found[key] = differences, paired(differences)
    t_holm, wilcoxon_holm = (holm([ps[i] for _, ps in found.values()]) for i in (0, 1))
    return {
        key: PairedTest(
            pairs=len(differences),
            difference=fmean(differences),
            t=t,
            wilcoxon=wilcoxon,
            t_holm=t_holm[place],
            wilcoxon_holm=wilcoxon_holm[place],
        )
        for place, (key, (differences, (t, wilcoxon))) in enumerate(found.items())
    }


def _row(key: Key, group: Sequence[CellRecord], test: PairedTest | None) -> Row:
    records = [_record(cell) for cell in group]
    aucs = [r.compact_test.auc for r in records]
    summaries = [r.summary for r in records]
    used = group[0].uses_pretrained
    nonzeros = [s.nonzeros for s in summaries if s.nonzeros is not None]
    dense = [s.dense for s in summaries if s.dense is not None]
    return Row(
        model=key[0],
        budget=key[1],
        method=key[2],
        seeds=[cell.seed for cell in group],
        auc=fmean(aucs),
        auc_std=stdev(aucs) if len(aucs) > 1 else None,
        log_loss=fmean(r.compact_test.log_loss for r in records),
        embedding=fmean(r.compact_size.embedding for r in records),
        bytes=_mean_bytes(r.compact_bytes for r in records),
        nonzeros=fmean(nonzeros) if nonzeros else None,
        dense=fmean(dense) if dense else None,
        uses_pretrained=used,
        search_seconds=fmean(r.seconds["search"] for r in records),
        search_share=fmean(r.seconds["search"] / r.seconds["pretrain"] for r in records),
        total_share=fmean(_spent(r, used) / r.seconds["pretrain"] for r in records),
        search_memory=max(cell.search_memory or 0 for cell in group),
        test=test,
        front=False,
    )


def _spent(record: RunRecord, used: bool) -> float:
    return sum(seconds for stage, seconds in record.seconds.items() if used or stage != "pretrain")


def _fulls(model: str, groups: dict[Key, list[CellRecord]]) -> list[Full]:
    """Returns the full model in float32, and in each store in which every record has it."""
    records = {cell.seed: _record(cell) for key, group in groups.items() if key[0] == model for cell in group}
    stores = [
        name
        for name in next(iter(records.values())).full_stored
        if all(name in r.full_stored for r in records.values())
    ]
    plain = {seed: (r.full_test, r.full_bytes) for seed, r in records.items()}
    found = {"float32": plain}
    found |= {
        name: {seed: (r.full_stored[name].test, r.full_stored[name].bytes) for seed, r in records.items()}
        for name in stores
    }
    embedding = fmean(r.full_size.embedding for r in records.values())
    seconds = fmean(r.seconds["pretrain"] for r in records.values())
    return [_full(model, store, tests, embedding, seconds) for store, tests in found.items()]


def _full(
    model: str, store: str, tests: dict[int, tuple[Metrics, Bytes | None]], embedding: float, seconds: float
) -> Full:
    aucs = [test.auc for test, _ in tests.values()]
    return Full(
        model=model,
        store=store,
        seeds=sorted(tests),
        auc=fmean(aucs),
        auc_std=stdev(aucs) if len(aucs) > 1 else None,
        log_loss=fmean(test.log_loss for test, _ in tests.values()),
        embedding=embedding,
        bytes=_mean_bytes(sizes for _, sizes in tests.values()),
        seconds=seconds,
    )


def _mean_bytes(sizes: Iterable[Bytes | None]) -> float | None:
    """Returns the mean of what is stored per id; None if a record lacks it."""
    found = [None if size is None else size.per_id for size in sizes]
    known = [size for size in found if size is not None]
    return fmean(known) if len(known) == len(found) else None


def _record(cell: CellRecord) -> RunRecord:
    assert cell.record is not None
    return cell.record
