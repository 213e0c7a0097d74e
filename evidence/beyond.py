"""Tables and figures of the page on searches beyond the paper."""

from typing import TYPE_CHECKING, Final

from evidence.data import Evidence
from evidence.grid import Grid, difference, spread
from evidence.pictures import BLUE, GREY, TITLES, note
from evidence.tables import Lines, verdict
from fieldwise.reports.run.markdown import markdown_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

QUARTER: Final = "54000 parameters"


def raced(evidence: Evidence) -> Evidence:
    """Returns the comparison with `race` added first: for each seed, the method with the best validation AUC.

    The search `race` gives the same result: its entrants are deterministic given the seed.
    """
    grid = Grid(evidence)
    winners = []
    for place in grid.places:
        for seed in sorted({cell.seed for cell in evidence.cells}):
            entrants = [cell for m in grid.methods for cell in grid.cells(*place, m) if cell.seed == seed]
            if entrants:
                winner = max(entrants, key=lambda cell: cell.valid_auc)
                spent = {stage: sum(cell.seconds[stage] for cell in entrants) for stage in winner.seconds}
                winners.append(winner.model_copy(update={"method": "race", "seconds": spent, "own": None}))
    return evidence.model_copy(update={"cells": (*winners, *evidence.cells)})


def winners(evidence: Evidence) -> Lines:
    """Tabulates the number of seeds that each method wins per model and budget."""
    grid = Grid(evidence)
    race = [cell for cell in raced(evidence).cells if cell.method == "race"]
    methods = {(c.model, c.budget, c.seed, c.valid_auc): c.method for c in evidence.cells}
    rows = []
    for model, budget in grid.places:
        won = [methods[model, budget, c.seed, c.valid_auc] for c in race if (c.model, c.budget) == (model, budget)]
        rows.append((model, budget, *(won.count(method) for method in grid.methods)))
    return markdown_table(("model", "budget", *(f"{method} won" for method in grid.methods)), rows)


def others(evidence: Evidence, rivals: Evidence) -> Lines:
    """Tabulates the race against the searches of another comparison with the same rules, over common seeds."""
    ours, theirs = Grid(raced(evidence)), Grid(rivals)
    rows = []
    for model, budget in theirs.places:
        for method in theirs.methods:
            cells = theirs.cells(model, budget, method)
            found = difference(ours.cells(model, budget, "race"), cells)
            tests = f"{found}", f"{found.t:.2g}", verdict(found)
            rows.append((model, budget, method, found.pairs, spread(cells), *tests))
    return markdown_table(
        ("model", "budget", "rival", "seeds", "rival's test AUC", "race less it", "p", "race is"), rows
    )


def quarter(figure: "Figure", evidence: Evidence) -> None:
    """Draws test AUC at a quarter of the parameters minus the full model's: uniform widths and the race."""
    grid = Grid(raced(evidence))
    figure.set_size_inches(7.5, 3.2)
    axes = figure.subplots()
    for shift, (method, label, color) in enumerate(
        [("uniform", "one width for all fields", GREY), ("race", "widths found by fieldwise", BLUE)]
    ):
        for place, model in enumerate(reversed(grid.models)):
            full = {cell.seed: cell.auc for cell in grid.full(model)}
            gaps = [1000 * (cell.auc - full[cell.seed]) for cell in grid.cells(model, QUARTER, method)]
            at = place + 0.36 * (shift - 0.5)
            name = None if place else label
            axes.barh(at, sum(gaps) / len(gaps), height=0.32, color=color, label=name)
            axes.plot(gaps, [at] * len(gaps), ".", color="black", alpha=0.35, markersize=4)
    axes.axvline(0, color="black", linewidth=1)
    axes.set_yticks(range(len(grid.models)), [TITLES[model] for model in reversed(grid.models)])
    axes.set_xlabel("thousandths of test AUC above the full model (points: ten seeds)")
    axes.legend(fontsize=8, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5), reverse=True)
    note(figure, "A quarter of the embedding parameters, at least the full model's accuracy (MovieLens-1M)")
