"""Renders a comparison as Markdown."""

from collections.abc import Iterable

from fieldwise.core.comparison import Comparison, Row
from fieldwise.reports.comparison.page_data import harms
from fieldwise.reports.run.markdown import Cells, markdown_table, plain, plain_rows

HEADS = (
    "method", "starts from", "seeds", "test AUC", "log loss", "embedding", "bytes", "search s", "search x", "all x",
    "memory", "difference", "t-test p", "Holm", "Wilcoxon p", "Holm", "front",
)  # fmt: skip
SHORT = (0, 3, 6, 8, 9, 11, 13)
"""Indices of the columns that fit into a terminal of 80 characters."""
SHORT_HEADS = tuple(HEADS[place] for place in SHORT)
FAILED_HEADS = ("model", "method", "budget", "seed", "why")


def markdown(comparison: Comparison) -> str:
    """Returns comparison.md: one table per model and budget, then notes on reading them and the failed cells."""
    first = next((cell.record for cell in comparison.cells if cell.record), None)
    lines = [f"# Searches compared on {plain(source(comparison))}", "", summary(comparison), ""]
    suspected = harms((cell.model, cell.seed, cell.record.harms) for cell in comparison.cells if cell.record)
    lines += [*(f"- {plain(line)}" for line in suspected), ""] if suspected else []
    for model, budget in groups(comparison):
        lines += [
            f"## {model}, {budget}",
            "",
            *markdown_table(HEADS, plain_rows(method_rows(comparison, model, budget))),
            "",
        ]
    lines += [*_front(comparison), "", *_notes(comparison)]
    missing = list(failed(comparison))
    if missing:
        lines += ["", "## Cells that failed", "", *markdown_table(FAILED_HEADS, plain_rows(missing))]
    if first:
        versions = ", ".join(f"{name} {version}" for name, version in first.versions.items())
        lines += ["", f"Device: {first.device}; {comparison.jobs} cells in parallel. Versions: {versions}."]
    return "\n".join(lines) + "\n"


def source(comparison: Comparison) -> str:
    """Returns what the rows are called: in a record, else by the settings."""
    named = (cell.record.source for cell in comparison.cells if cell.record)
    return next(named, str(comparison.settings.get("data", {}).get("name", "")))


def groups(comparison: Comparison) -> list[tuple[str, str]]:
    """Returns each model and budget with at least one complete cell."""
    return list(dict.fromkeys((row.model, row.budget) for row in comparison.rows))


def summary(comparison: Comparison) -> str:
    """Returns a sentence with the number of cells by state."""
    states = [cell.state for cell in comparison.cells]
    counts = ", ".join(f"{states.count(s)} {s}" for s in ("complete", "failed", "open") if s in states)
    return f"{len(states)} cells: {counts}. Baseline: {comparison.baseline}."


def method_rows(comparison: Comparison, model: str, budget: str) -> Iterable[Cells]:
    """Yields one table row per method, by decreasing test AUC, then the full model and models without embeddings."""
    found = [row for row in comparison.rows if (row.model, row.budget) == (model, budget)]
    for row in sorted(found, key=lambda row: -row.auc):
        yield _cells(row)
    for full in comparison.full:
        if full.model == model:
            auc = _spread(full.auc, full.auc_std)
            name = "full model" if full.store == "float32" else f"full model, {full.store}"
            size, blanks = (f"{full.embedding:,.0f}", _bytes(full.bytes)), ("",) * 7
            yield name, "fresh", len(full.seeds), auc, f"{full.log_loss:.4f}", *size, "", "", "1.00", *blanks
    if comparison.without_search is not None:
        base = comparison.without_search
        for name, metrics in (("logistic regression", base.logistic), ("constant", base.constant)):
            yield name, "", "", f"{metrics.auc:.4f}", f"{metrics.log_loss:.4f}", *("",) * 12


def short(cells: Cells) -> Cells:
    """Returns the columns of a row that fit into a terminal."""
    return tuple(cells[place] for place in SHORT)


def failed(comparison: Comparison) -> Iterable[Cells]:
    """Yields one table row per cell whose last attempt failed."""
    for cell in comparison.cells:
        if cell.state == "failed":
            yield cell.model, cell.method, cell.budget, cell.seed, cell.error or ""


def _cells(row: Row) -> Cells:
    test = row.test
    tests: Cells = ("",) * 5
    if test:
        ps = (test.t, test.t_holm, test.wilcoxon, test.wilcoxon_holm)
        tests = (f"{test.difference:+.4f}", *(f"{p:.3g}" for p in ps))
    return (
        row.method,
        "pretrained" if row.uses_pretrained else "fresh",
        len(row.seeds),
        _spread(row.auc, row.auc_std),
        f"{row.log_loss:.4f}",
        f"{row.embedding:,.0f}",
        _bytes(row.bytes),
        f"{row.search_seconds:.1f}",
        f"{row.search_share:.2f}",
        f"{row.total_share:.2f}",
        f"{row.search_memory / 2**20:,.0f} MiB",
        *tests,
        "yes" if row.front else "",
    )


def _front(comparison: Comparison) -> list[str]:
    """Returns the Pareto front of test AUC and stored bytes."""
    points = [
        (r.model, 4 * r.embedding if r.bytes is None else r.bytes, r.embedding, r.auc, f"{r.method}, {r.budget}")
        for r in comparison.rows
        if r.front
    ]
    lines = ["## The front: no smaller model is better, nor the full model in fewer bits", ""]
    body = [(m, f"{b:,.0f}", f"{e:,.0f}", f"{a:.4f}", name) for m, b, e, a, name in sorted(points)]
    return lines + markdown_table(("model", "bytes", "embedding", "test AUC", "method and budget"), plain_rows(body))


def _notes(comparison: Comparison) -> list[str]:
    tested = [row for row in comparison.rows if row.test]
    pairs = max((row.test.pairs for row in tested if row.test), default=0)
    least = 2.0 ** (1 - pairs) if pairs else 1.0
    lines = [
        "Mean and standard deviation over seeds; test rows are read once, at the end of each cell. Embedding counts "
        "the numbers in the tables of the compact model; bytes count all that is stored per id: tables, first-order "
        "weights and scales. Full models in float16, int8 and int4 are rounded after training. Search x is the search "
        "time as a multiple of one plain "
        "training of the full model; all x adds retraining, and pretraining if the cell uses it (counted in full for "
        "each cell, although all cells of a seed share it). Memory is the peak during the search.",
        "",
        f"Differences are against {comparison.baseline}, per seed; tests are paired and two-sided. "
        f"{comparison.comparisons} comparisons, corrected together by Holm's method. With {pairs} pairs, the smallest "
        f"possible p of Wilcoxon's test is {least:.3g}.",
    ]
    lines += [
        f"\n{row.method} at {row.budget} on {row.model}: the method's own result keeps {row.nonzeros:,.0f} single "
        f"numbers, which take {row.dense:,.0f} in a dense layout; the table shows whole columns within the budget."
        for row in comparison.rows
        if row.nonzeros is not None and row.dense is not None
    ]
    return lines


def _bytes(size: float | None) -> str:
    return "" if size is None else f"{size:,.0f}"


def _spread(mean: float, deviation: float | None) -> str:
    return f"{mean:.4f}" if deviation is None else f"{mean:.4f} ± {deviation:.4f}"
