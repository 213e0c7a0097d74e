"""The generated pages of `docs/results`: their tables, figures and data."""

from collections.abc import Callable
from typing import Any, Final

from evidence import beyond, discussions, dynamics, orthogonality, pictures, tables
from evidence.data import Evidence
from evidence.grid import Grid, Measure, auc, valid_auc
from evidence.page import Item, Page


def _of_grid(make: Callable[..., Any], *more: Any) -> Callable[[Evidence], Any]:
    """Applies `make` to the grid of one comparison."""
    return lambda evidence: make(Grid(evidence), *more)


def _of_race(make: Callable[..., Any], *more: Any) -> Callable[[Evidence], Any]:
    """Applies `make` to the grid of one comparison with the race of its methods."""
    return lambda evidence: make(Grid(beyond.raced(evidence)), *more)


def _distilled(measure: Measure) -> Callable[..., Any]:
    """Returns the table of distillation gains for a measure."""
    return lambda with_it, plain: discussions.distilled(with_it, plain, measure)


_BOTH: Final = ("figure-2", "table-2")
_COSINES: Final = ("figure-4", "figure-4-without")
_AUTODIM: Final = ("autodim-criteo", "autodim-avazu")
_VARIANTS: Final = ("figure-2", "variants-recbole", "variants-autoint")

PAGES: Final = {
    "figure-2": Page(
        {
            "auc": Item(("figure-2",), _of_grid(tables.means)),
            "tests": Item(("figure-2",), _of_grid(tables.against, "ham", ("sam", "sam-gs", "ham-p", "uniform"))),
            "best": Item(("figure-2",), _of_grid(tables.best)),
            "sizes": Item(("figure-2",), _of_grid(tables.sizes)),
            "widths-dcnv2": Item(("figure-2",), _of_grid(tables.widths, "dcnv2", "28 columns")),
            "widths-deepfm": Item(("figure-2",), _of_grid(tables.widths, "deepfm", "28 columns")),
        },
        {"figure-2": Item(("figure-2",), pictures.fronts)},
    ),
    "orthogonality": Page(
        {
            "gains": Item(_BOTH, orthogonality.gains),
            "full": Item(_BOTH, orthogonality.full_gains),
            "cosines": Item(_COSINES, orthogonality.cosines),
            "costs": Item(_COSINES, orthogonality.costs),
        },
        {"figure-4": Item(_COSINES, orthogonality.panels)},
    ),
    "dynamics": Page(
        {
            "summary": Item(("figure-3",), dynamics.summary),
            "fields": Item(("figure-3",), dynamics.fields),
        },
        {"figure-3": Item(("figure-3",), dynamics.picture)},
    ),
    "autodim": Page(
        {
            "criteo": Item(("autodim-criteo",), _of_grid(tables.methods_of, "autodim")),
            "avazu": Item(("autodim-avazu",), _of_grid(tables.methods_of, "autodim")),
            "short": Item(("autodim-avazu", "autodim-avazu-short"), discussions.shorter),
            "movielens": Item(("autodim-movielens",), _of_grid(tables.methods_of, "autodim")),
            "own": Item(_AUTODIM, discussions.own_columns),
            "movielens-own": Item(("autodim-movielens",), discussions.own_columns),
        },
        {"autodim": Item(_AUTODIM, pictures.gaps)},
    ),
    "discussions": Page(
        {
            "width": Item(("width-8", "figure-2"), discussions.narrow),
            "stages": Item(("multi-stage",), _of_grid(tables.methods_of, "ham")),
            "dense": Item(("figure-2",), discussions.dense),
        },
    ),
    "variants": Page(
        {
            "claims": Item(_VARIANTS, discussions.variants),
            "ids": Item(("figure-2",), _of_grid(tables.widths, "deepfm", "28 columns")),
            "recbole": Item(("variants-recbole",), _of_grid(tables.widths, "deepfm", "28 columns")),
            "autoint": Item(("variants-autoint",), _of_grid(tables.widths, "deepfm", "28 columns")),
            "noticed": Item(("variants-autoint", "memorizing"), discussions.noticed),
        },
        {"variants": Item(_VARIANTS, discussions.variant_gaps)},
    ),
    "defaults": Page(
        {
            "movielens": Item(("defaults-movielens",), _of_grid(tables.means, valid_auc)),
            "movielens-tests": Item(("defaults-movielens",), _of_grid(tables.changes, "published", valid_auc)),
            "movielens-costs": Item(("defaults-movielens",), _of_grid(tables.methods_of, "published")),
            "criteo": Item(("defaults-criteo",), _of_grid(tables.means, valid_auc)),
            "criteo-tests": Item(("defaults-criteo",), _of_grid(tables.changes, "published", valid_auc)),
        },
    ),
    "distil": Page(
        {
            f"{name}-{rows}": Item((f"distil-{name}", f"distil-{name}-plain"), _distilled(measure))
            for name in ("movielens", "criteo")
            for rows, measure in (("valid", valid_auc), ("test", auc))
        },
    ),
    "race": Page(
        {
            "auc": Item(("beyond",), _of_race(tables.means)),
            "tests": Item(("beyond",), _of_race(tables.challenge)),
            "single": Item(("beyond",), _of_grid(tables.against, "rounds", ("ham", "uniform"))),
            "winners": Item(("beyond",), beyond.winners),
            "rivals": Item(("beyond", "beyond-rivals"), beyond.others),
            "sizes": Item(("beyond",), _of_race(tables.sizes)),
        },
        {"beyond": Item(("beyond",), pictures.fronts), "quarter": Item(("beyond",), beyond.quarter)},
    ),
}
