"""Renders a run as Markdown."""

import re
from collections.abc import Iterable, Sequence
from statistics import mean, stdev
from typing import Final

from fieldwise.core.baselines import BaselineRecord
from fieldwise.core.records import RunRecord
from fieldwise.data.kinds.check import Check
from fieldwise.reports.run import headline, stored, verdict

Cells = Sequence[object]
_MARKS: Final = re.compile(r"[\\`*\[\]<>~&$]|(?<![^\W_])_|_(?![^\W_])")
"""Characters with a meaning in Markdown, or in HTML within it; a `_` inside a word has none."""


def report(records: Sequence[RunRecord], baselines: BaselineRecord | None = None, kinds: Check | None = None) -> str:
    """Returns the text of a run's report: results for all budgets and seeds, then widths and times."""
    first = records[0]
    lines = [
        f"# {plain(first.search)} on {plain(first.source)}, {plain(first.model)}",
        "",
        f"{len(records)} searches: budgets {', '.join(dict.fromkeys(r.budget for r in records))}; "
        f"seeds {', '.join(dict.fromkeys(str(r.seed) for r in records))}. Device: {first.device}.",
        "",
        plain(headline.sentence(headline.chosen(records), baselines)),
        "",
        *(f"- **Warning.** {plain(line)}" for line in verdict.warnings(records, baselines)),
        *(f"- {plain(line)}" for line in verdict.harms(records)),
        "",
        "## Verdict",
        "",
        *markdown_table(verdict.HEADS, plain_rows(verdict.verdict_rows(verdict.judged(records, baselines)))),
        "",
        *markdown_table(CHANGE_HEADS, plain_rows(changes(records))),
        "",
        INTERVALS,
        "",
        "## Full against compact",
        "",
        *markdown_table(RESULT_HEADS, plain_rows(results(records))),
        "",
        "Each model is tested once, at the end; no choice uses the test rows. "
        "Embedding counts the numbers in the tables; linear counts "
        "first-order weights, which only budgets in bytes count and may drop.",
        "",
        *_columns(kinds),
        *_stored(records),
        "## What the search evaluated and what it selected",
        "",
        *markdown_table(SEARCH_HEADS, plain_rows(searches(records))),
        "",
        "Validation AUC at the end of the search, before retraining. For a hard deterministic gate the two agree; for "
        "soft or random gates the gap shows how far the evaluated model is from the selected one.",
        *winners(records),
    ]
    for record in records:
        lines += ["", f"## Widths, budget {record.budget}, seed {record.seed}", ""]
        lines += markdown_table(WIDTH_HEADS, plain_rows(widths(record)))
    lines += ["", "## Seconds per stage", "", *markdown_table(SECOND_HEADS, plain_rows(seconds(records)))]
    lines += ["", "Versions: " + ", ".join(f"{name} {v}" for name, v in first.versions.items()) + "."]
    return "\n".join(lines) + "\n"


def _columns(kinds: Check | None) -> list[str]:
    """The section on the raw columns; none if the source names its own fields."""
    if kinds is None:
        return []
    view = kinds.view()
    lines = [f"- {plain(line)}" for line in view.lines]
    return ["## Columns", "", plain(view.title), "", *lines, "", *markdown_table(view.heads, plain_rows(view.rows)), ""]


def _stored(records: Sequence[RunRecord]) -> list[str]:
    """The section on stored bytes; none for records of older versions."""
    rows = list(stored.stored_rows(records))
    return ["## Stored bytes", "", *markdown_table(stored.HEADS, plain_rows(rows)), "", stored.NOTE, ""] if rows else []


CHANGE_HEADS = ("compact minus full", "test AUC", "log loss")
INTERVALS = (
    "In parentheses: 95% intervals, from the test rows (DeLong's for AUC; differences are paired row by row) and, if "
    "there are several, the seeds. A constant always predicts the click rate of the training rows; the logistic "
    "regression has one weight per id of the same encoded rows."
)
RESULT_HEADS = ("budget", "seed", "model", "columns", "embedding", "linear", "dense", "test AUC", "log loss")
SEARCH_HEADS = ("budget", "seed", "evaluated", "selected", "steps", "live before finish", "re-activations")
WIDTH_HEADS = ("field", "cardinality", "width before", "width after", "parameters saved")
SECOND_HEADS = ("budget", "seed", "pretrain", "search", "retrain", "peak memory")


def changes(records: Sequence[RunRecord]) -> Iterable[Cells]:
    """Yields the differences between compact and full, one row per budget."""
    for group in verdict.by_budget(records).values():
        found = verdict.change(group)
        yield found.budget, found.auc.text("+"), found.log_loss.text("+")


def results(records: Sequence[RunRecord]) -> Iterable[Cells]:
    """Yields two rows per record, full and compact, and their mean and deviation if there are several seeds."""
    for record in records:
        for name, size, test in (
            ("full", record.full_size, record.full_test),
            ("compact", record.compact_size, record.compact_test),
        ):
            sizes = (f"{n:,}" for n in (size.columns, size.embedding, size.first_order, size.dense))
            yield record.budget, record.seed, name, *sizes, f"{test.auc:.4f}", f"{test.log_loss:.4f}"
    for budget in dict.fromkeys(record.budget for record in records):
        same = [record for record in records if record.budget == budget]
        if len(same) > 1:
            for name, tests in (
                ("full", [r.full_test for r in same]),
                ("compact", [r.compact_test for r in same]),
            ):
                spreads = _spread([test.auc for test in tests]), _spread([test.log_loss for test in tests])
                yield budget, f"all {len(same)}", name, "", "", "", "", *spreads


def searches(records: Sequence[RunRecord]) -> Iterable[Cells]:
    """Yields one row per search with its outcome."""
    for record in records:
        s = record.summary
        evaluated = "-" if s.evaluated_auc is None else f"{s.evaluated_auc:.6f}"
        live = "-" if s.raw_live is None else s.raw_live
        yield record.budget, record.seed, evaluated, f"{s.selected_auc:.6f}", s.steps, live, s.reactivations


def winners(records: Sequence[RunRecord]) -> list[str]:
    """The search that won, per budget and seed, if a search ran several."""
    found = [(r.budget, r.seed, r.summary.winner) for r in records if r.summary.winner is not None]
    return ["", *markdown_table(("budget", "seed", "winner"), plain_rows(found))] if found else []


def widths(record: RunRecord) -> Iterable[Cells]:
    """Yields one row per field, and the totals."""
    rows = list(zip(record.fields, record.cardinalities, record.widths_before, record.widths_after, strict=True))
    for name, cardinality, before, after in rows:
        yield name, f"{cardinality:,}", before, after, f"{cardinality * (before - after):,}"
    saved = sum(cardinality * (before - after) for _, cardinality, before, after in rows)
    counts = sum(record.cardinalities), sum(record.widths_before), sum(record.widths_after)
    yield "all", f"{counts[0]:,}", counts[1], counts[2], f"{saved:,}"


def seconds(records: Sequence[RunRecord]) -> Iterable[Cells]:
    """Yields the seconds per stage of each record; all budgets of a seed share one pretraining."""
    for r in records:
        stages = (f"{r.seconds[stage]:.1f}" for stage in ("pretrain", "search", "retrain"))
        yield r.budget, r.seed, *stages, f"{r.peak_memory / 2**20:,.0f} MiB"


def plain(text: object) -> str:
    """Escapes text, such as a field name, for one line of Markdown; `markdown_table` escapes bars."""
    line = "".join(letter if letter.isprintable() else " " for letter in str(text))
    return _MARKS.sub(r"\\\g<0>", line)


def plain_rows(rows: Iterable[Cells]) -> Iterable[Cells]:
    """Escapes all cells of some rows."""
    return ([plain(cell) for cell in row] for row in rows)


def markdown_table(heads: Sequence[str], rows: Iterable[Cells]) -> list[str]:
    """Returns the lines of a Markdown table; bars inside cells are escaped."""
    body = [[str(cell).replace("|", "\\|").replace("\n", " ") for cell in row] for row in rows]
    lines = [list(heads), ["---"] * len(heads), *body]
    return ["| " + " | ".join(line) + " |" for line in lines]


def _spread(values: Sequence[float]) -> str:
    return f"{mean(values):.4f} ± {stdev(values):.4f}"
