"""Tables of the paper's discussions: base width, dense parameters, and possible field sets of its MovieLens-1M."""

from typing import TYPE_CHECKING

from evidence.data import Evidence
from evidence.grid import Grid, Measure, auc, difference, mean, spread
from evidence.pictures import gaps
from evidence.tables import Lines, verdict
from fieldwise.reports.run.markdown import markdown_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def narrow(slim: Evidence, wide: Evidence) -> Lines:
    """Tabulates each method with base width 8 against base width 16 at equal budgets, then the full models."""
    grid, base = Grid(slim), Grid(wide)
    rows = []
    for name in grid.models:
        model = name.removesuffix("-8")
        pairs = {
            (budget, method): (grid.cells(name, budget, method), base.cells(model, budget, method))
            for budget in grid.budgets
            for method in grid.methods
        }
        pairs["", "full model"] = grid.full(name), base.full(model)
        for (budget, method), (ours, theirs) in pairs.items():
            found = difference(ours, theirs)
            tests = f"{found}", f"{found.t:.2g}", verdict(found)
            rows.append((model, budget, method, spread(theirs), spread(ours), *tests))
    return markdown_table(
        ("model", "budget", "method", "base width 16", "base width 8", "8 less 16", "p", "verdict"), rows
    )


def dense(evidence: Evidence) -> Lines:
    """Tabulates the parameters outside the embedding tables of the full and the compact DCN-V2."""
    grid = Grid(evidence)
    full = grid.full("dcnv2")[0]
    rows = [("full model", sum(full.widths), f"{full.dense:,}", "100%")]
    for budget in grid.budgets:
        cells = grid.cells("dcnv2", budget, "ham")
        count = mean(cells, lambda cell: cell.dense)
        rows.append((f"ham, {budget}", sum(cells[0].widths), f"{count:,.0f}", f"{count / full.dense:.1%}"))
    return markdown_table(("DCN-V2", "columns", "dense parameters", "of the full model's"), rows)


def variants(*data: Evidence) -> Lines:
    """Tabulates HAM against `uniform` and `sam` for each set of fields, to check the paper's claims."""
    rows = []
    for evidence in by_variant(*data):
        grid = Grid(evidence)
        for model, budget in grid.places:
            ham = grid.cells(model, budget, "ham")
            found = [difference(ham, grid.cells(model, budget, other)) for other in ("uniform", "sam")]
            tests = [text for one in found for text in (f"{one}", f"{one.t:.2g}", verdict(one))]
            rows.append((evidence.about.name, model, budget, len(ham), spread(ham), *tests, spread(grid.full(model))))
    heads = ("less uniform", "p", "ham is", "less sam", "p", "ham is", "full model")
    return markdown_table(("fields", "model", "budget", "seeds", "ham", *heads), rows)


def by_variant(*data: Evidence) -> list[Evidence]:
    """Returns evidence named after its set of fields, restricted to the models and methods common to all."""
    models = set.intersection(*(set(Grid(evidence).models) for evidence in data))
    methods = set.intersection(*(set(Grid(evidence).methods) for evidence in data))
    return [
        evidence.model_copy(update={
            "about": evidence.about.model_copy(update={"name": evidence.about.settings["data"]["variant"]}),
            "cells": tuple(cell for cell in evidence.cells if cell.model in models and cell.method in methods),
        })
        for evidence in data
    ]  # fmt: skip


def noticed(*data: Evidence) -> Lines:
    """Tabulates the number of seeds that drop the timestamp, and the test AUC of those that do and do not."""
    rows = []
    for evidence in data:
        grid, place = Grid(evidence), list(evidence.about.fields).index("timestamp")
        for model, budget in grid.places:
            for method in grid.methods:
                cells = grid.cells(model, budget, method)
                groups = [[cell for cell in cells if bool(cell.widths[place]) is kept] for kept in (False, True)]
                texts = [spread(group) if group else "" for group in groups]
                rows.append((model, budget, method, f"{len(groups[0])} of {len(cells)}", *texts))
    return markdown_table(
        ("model", "budget", "method", "without timestamp", "test AUC without it", "test AUC with it"), rows
    )


def variant_gaps(figure: "Figure", *data: Evidence) -> None:
    """Draws every method minus `uniform` for each set of fields."""
    gaps(figure, *by_variant(*data))


def own_columns(*data: Evidence) -> Lines:
    """Tabulates the columns that AutoDim selects without a budget."""
    rows = []
    for evidence in data:
        grid = Grid(evidence)
        for model, budget in grid.places:
            cells = grid.cells(model, budget, "autodim")
            own = mean(cells, lambda cell: cell.own or 0)
            rows.append((evidence.about.name.removeprefix("autodim-"), model, budget, f"{own:.1f}"))
    return markdown_table(("data", "model", "budget", "AutoDim's own columns"), rows)


def distilled(with_it: Evidence, plain: Evidence, measure: Measure = auc) -> Lines:
    """Tabulates the gain from distillation, for the methods of both grids."""
    ours, theirs = Grid(with_it), Grid(plain)
    rows = []
    for model, budget in theirs.places:
        for method in theirs.methods:
            a, b = ours.cells(model, budget, method), theirs.cells(model, budget, method)
            found = difference(a, b, measure)
            texts = spread(b, measure), spread(a, measure), f"{found}", f"{found.t:.2g}", verdict(found)
            rows.append((model, budget, method, *texts))
    return markdown_table(("model", "budget", "method", "clicks alone", "distilled", "gain", "p", "verdict"), rows)


def shorter(usual: Evidence, short: Evidence) -> Lines:
    """Tabulates HAM with fewer search epochs against the usual number, for the cells of both grids."""
    ours, theirs = Grid(short), Grid(usual)
    rows = []
    for model, budget in ours.places:
        for evidence, grid in ((usual, theirs), (short, ours)):
            cells = grid.cells(model, budget, "ham")
            epochs = evidence.about.settings["methods"]["ham"]["epochs"]
            loss = mean(cells, lambda cell: cell.log_loss)
            rows.append((model, budget, epochs, spread(cells), f"{loss:.4f}", len(cells)))
        found = difference(ours.cells(model, budget, "ham"), theirs.cells(model, budget, "ham"))
        rows.append((model, budget, "difference", f"{found} (p {found.t:.2g})", "", found.pairs))
    return markdown_table(("model", "budget", "epochs of search", "test AUC", "log loss", "seeds"), rows)
