"""Adapt searches to a user's own training loop.

Gates update as in the built-in loop. `sseds`, `elimination` and `rounds` collect gradients from the batches of each
step; the baselines need none. Searches that train their own network are not supported, and the error gives the reason.
"""

from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray

from fieldwise.core.budget import Budget
from fieldwise.core.errors import SettingsError
from fieldwise.core.schema import Layout
from fieldwise.pruning.sites import Tables
from fieldwise.searches.elimination import Elimination
from fieldwise.searches.gated import Gated
from fieldwise.searches.loop_elimination import ByElimination
from fieldwise.searches.loop_methods import ByFeeling, ByGate, BySize, Fixed, Method
from fieldwise.searches.loop_rounds import ByRounds
from fieldwise.searches.magnitude import Magnitude
from fieldwise.searches.mde import MDE
from fieldwise.searches.random import Random
from fieldwise.searches.rounds import Rounds
from fieldwise.searches.search import Search, check_smallest
from fieldwise.searches.sseds import SSEDS
from fieldwise.searches.uniform import Uniform

RACE: Final = "retrains and compares several models: create one pruner per search, and keep the best result"


def method_of(search: Search, tables: Tables, budget: Budget, steps: int | None, device: torch.device) -> Method:
    """Return the search in a form that a user's loop can step."""
    layout = tables.layout
    if budget.total:
        raise SettingsError(f"Budget of {budget}: a pruner counts tables only. Leave 'total' out.")
    budget.limit(layout)  # reject an impossible budget before any work
    match search:
        case Gated():
            if search.stages:
                raise SettingsError(
                    "stages are planned by the built-in loop. In your own loop, call compact() and create a new pruner."
                )
            return ByGate(tables, budget, search, device)
        case SSEDS():
            return ByFeeling(tables, budget, device)
        case Elimination():
            return ByElimination(tables, budget, search, device)
        case Rounds():
            return ByRounds(tables, budget, search, steps, device)
        case Magnitude():
            return BySize(tables, budget, search)
        case MDE() | Uniform() | Random():
            return Fixed(tables, budget, _fixed_scores(search, layout, budget), device)
    name = type(search).__name__ if isinstance(search, Search) else repr(search)
    own = search.own_network if isinstance(search, Search) else ""
    why = own or (RACE if name == "Race" else "is not a search that a pruner supports")
    raise SettingsError(
        f"{name} {why}. In your own loop, use a gate (HAM, SAM, SamSigmoid, SamGS, HamP) or Elimination, SSEDS, "
        "Rounds, Magnitude, MDE, Uniform, Random."
    )


def _fixed_scores(search: MDE | Uniform | Random, layout: Layout, budget: Budget) -> NDArray[np.float64]:
    """Scores of columns that do not depend on data."""
    match search:
        case MDE():
            check_smallest("mde", budget, layout, (1,) * len(layout.schema))
            return search.scores(layout)
        case Uniform():
            return -np.concatenate([np.arange(width) for width in layout.widths]).astype(np.float64)
        case Random():
            return torch.rand(layout.columns, dtype=torch.float64).numpy()
