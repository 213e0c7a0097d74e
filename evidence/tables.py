"""Tables shared by several pages."""

from collections.abc import Sequence
from statistics import fmean

from evidence.data import Cell
from evidence.grid import Difference, Grid, Measure, auc, difference, mean, spread, with_holm
from fieldwise.reports.run.markdown import markdown_table

Lines = list[str]


def means(grid: Grid, measure: Measure = auc) -> Lines:
    """Tabulates mean and deviation per model and budget (rows) and method (columns), the best in bold."""
    rows = []
    for model, budget in grid.places:
        groups = [grid.cells(model, budget, method) for method in grid.methods]
        best = max(mean(group, measure) for group in groups)
        texts = [f"**{spread(g, measure)}**" if mean(g, measure) == best else spread(g, measure) for g in groups]
        rows.append((model, budget, *texts, spread(grid.full(model), measure)))
    return markdown_table(("model", "budget", *grid.methods, "full model"), rows)


def sizes(grid: Grid) -> Lines:
    """Tabulates the mean number of embedding parameters."""
    rows = []
    for model, budget in grid.places:
        counts = [mean(grid.cells(model, budget, method), lambda cell: cell.embedding) for method in grid.methods]
        full = mean(grid.full(model), lambda cell: cell.embedding)
        rows.append((model, budget, *(f"{count:,.0f}" for count in (*counts, full))))
    return markdown_table(("model", "budget", *grid.methods, "full model"), rows)


def best(grid: Grid) -> Lines:
    """Tabulates the highest test AUC of all seeds."""
    rows = []
    for model, budget in grid.places:
        tops = [max(cell.auc for cell in grid.cells(model, budget, method)) for method in grid.methods]
        rows.append((model, budget, *(f"**{top:.4f}**" if top == max(tops) else f"{top:.4f}" for top in tops)))
    return markdown_table(("model", "budget", *grid.methods), rows)


def against(grid: Grid, method: str, others: Sequence[str], measure: Measure = auc) -> Lines:
    """Tabulates one method minus each other, with the paired p; a star marks p < 0.05 after Holm's correction."""
    return _differences(grid, [(method, other) for other in others], measure)


def changes(grid: Grid, reference: str, measure: Measure = auc) -> Lines:
    """Tabulates each other method minus the reference, as `against` does."""
    return _differences(grid, [(method, reference) for method in grid.methods if method != reference], measure)


def _differences(grid: Grid, pairs: Sequence[tuple[str, str]], measure: Measure) -> Lines:
    found = {
        (*place, pair): difference(grid.cells(*place, pair[0]), grid.cells(*place, pair[1]), measure)
        for place in grid.places
        for pair in pairs
    }
    corrected = dict(zip(found, with_holm(list(found.values())), strict=True))
    rows = [
        (model, budget, *(_tested(found[model, budget, p], corrected[model, budget, p]) for p in pairs))
        for model, budget in grid.places
    ]
    return markdown_table(("model", "budget", *(f"{ours} less {theirs}" for ours, theirs in pairs)), rows)


def challenge(grid: Grid, measure: Measure = auc) -> Lines:
    """Tabulates the first method against the best other method per model and budget, and against `uniform`."""
    first, *others = grid.methods
    rows = []
    for model, budget in grid.places:
        ours = grid.cells(model, budget, first)
        best = max(others, key=lambda other: mean(grid.cells(model, budget, other), measure))
        rival = difference(ours, grid.cells(model, budget, best), measure)
        base = difference(ours, grid.cells(model, budget, "uniform"), measure)
        texts = [text for one in (rival, base) for text in (f"{one}", f"{one.t:.2g}", verdict(one))]
        rows.append((model, budget, spread(ours, measure), best, *texts))
    heads = ("model", "budget", first, "best rival", "less it", "p", f"{first} is", "less uniform", "p", f"{first} is")
    return markdown_table(heads, rows)


def widths(grid: Grid, model: str, budget: str) -> Lines:
    """Tabulates the mean kept width of each field per method."""
    fields = grid.evidence.about.fields
    rows = []
    for place, (name, cardinality) in enumerate(fields.items()):
        kept = [fmean(c.widths[place] for c in grid.cells(model, budget, method)) for method in grid.methods]
        full = grid.full(model)[0].widths[place]
        rows.append((name, f"{cardinality:,}", full, *(f"{width:.1f}" for width in kept)))
    return markdown_table(("field", "cardinality", "full", *grid.methods), rows)


def methods_of(grid: Grid, reference: str) -> Lines:
    """Tabulates accuracy, size, search time and the difference from a reference per model and method."""
    rows = []
    for model, budget in grid.places:
        base = grid.cells(model, budget, reference)
        for method in sorted(grid.methods, key=lambda method: -mean(grid.cells(model, budget, method))):
            cells = grid.cells(model, budget, method)
            found = difference(cells, base) if method != reference else None
            seconds = mean(cells, lambda cell: cell.seconds["search"])
            tests = (f"{found}", f"{found.t:.2g}") if found else ("", "")
            rows.append((model, budget, method, *_figures(cells), f"{seconds:.1f}", *tests))
        full = grid.full(model)
        rows.append((model, budget, "full model", *_figures(full), "", "", ""))
    heads = ("model", "budget", "method", "test AUC", "log loss", "embedding", "search s", f"less {reference}", "p")
    return markdown_table(heads, rows)


def verdict(found: Difference) -> str:
    """Returns "higher" or "lower" if a difference is significant at 0.05, otherwise "level"."""
    if found.t >= 0.05:
        return "level"
    return "higher" if found.mean > 0 else "lower"


def _figures(cells: Sequence[Cell]) -> tuple[str, str, str]:
    return spread(cells), f"{mean(cells, lambda c: c.log_loss):.4f}", f"{mean(cells, lambda c: c.embedding):,.0f}"


def _tested(found: Difference, corrected: float) -> str:
    return f"{found} (p {found.t:.2g}){' *' if corrected < 0.05 else ''}"
