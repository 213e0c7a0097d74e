"""The page of searches beyond the paper."""

from evidence.data import Evidence
from evidence.grid import Grid
from evidence.tables import Lines
from fieldwise.reports.markdown import table


def raced(evidence: Evidence) -> Evidence:
    """The comparison with `race` in front: of each seed's methods the one that is best on validation rows.

    The search `race` does the same by itself: with a seed all its entrants end as they ended here.
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
    """How many seeds each method wins in each cell."""
    grid = Grid(evidence)
    race = [cell for cell in raced(evidence).cells if cell.method == "race"]
    methods = {(c.model, c.budget, c.seed, c.valid_auc): c.method for c in evidence.cells}
    rows = []
    for model, budget in grid.places:
        won = [methods[model, budget, c.seed, c.valid_auc] for c in race if (c.model, c.budget) == (model, budget)]
        rows.append((model, budget, *(won.count(method) for method in grid.methods)))
    return table(("model", "budget", *(f"{method} won" for method in grid.methods)), rows)
