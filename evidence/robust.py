"""Writes the tables of searches over several datasets: `python -m evidence.robust`.

Reads what `benchmarks/robust.py` wrote to `benchmarks/results/robust.jsonl` and, of the other searches, to
`robust-searches.jsonl`; writes `docs/results/robust.md`.
"""

import json
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from typing import Any, Final

from evidence.page import with_tables
from evidence.pictures import TITLES
from fieldwise.core.files import write_text
from fieldwise.reports.comparison.statistics import paired
from fieldwise.reports.run.markdown import markdown_table

ROOT: Final = Path(__file__).resolve().parent.parent
RESULTS: Final = ROOT / "benchmarks" / "results" / "robust.jsonl"
SEARCHES: Final = RESULTS.with_name("robust-searches.jsonl")
PAGE: Final = ROOT / "docs" / "results" / "robust.md"
TIERS: Final = "-tiers"
"""Ends the name of a dataset with tiers."""
CONFIRMING: Final = ("census", "reviews")
"""Datasets on which nothing was chosen."""
BASELINE: Final = ("uniform", "constant", "")
SAME: Final = ("uniform", "decay", "")
"""The baseline with the default retraining."""
DEFAULT: Final = ("elimination", "decay", "tiers")

Entrant = tuple[str, str, str]
"""Search, schedule of the retraining, and `tiers` or nothing."""
Cell = tuple[str, str, float]
"""Dataset, model and fraction of the parameters."""
Cells = dict[Cell, dict[Entrant, dict[int, dict[str, Any]]]]


def read(*paths: Path) -> Cells:
    """Returns the rows by cell, entrant and seed, without those of budgets that a search refused.

    Where a later file has the default, or `uniform` with its schedule, these replace those of an earlier one: other
    searches have their own where it has changed since they were measured.
    """
    cells: Cells = defaultdict(lambda: defaultdict(dict))
    for path in paths:
        for cell, found in _of(path).items():
            twice = found.keys() & cells[cell].keys() - {DEFAULT, SAME}
            assert not twice, f"two files have rows of {twice} in {cell}"
            cells[cell].update(found)
    return cells


def _of(path: Path) -> Cells:
    cells: Cells = defaultdict(lambda: defaultdict(dict))
    for row in map(json.loads, path.read_text(encoding="utf-8").splitlines()):
        data, model, seed = row["unit"]
        if row["method"] != "full" and "refused" not in row:
            entrant = row["method"], row["schedule"], "tiers" if data.endswith(TIERS) else ""
            seeds = cells[data.removesuffix(TIERS), model, row["fraction"]][entrant]
            assert seed not in seeds, f"two rows of {entrant}, {row['unit']}, {row['fraction']}"
            seeds[seed] = row
    return cells


def differences(
    cells: dict[Entrant, dict[int, dict[str, Any]]], entrant: Entrant, baseline: Entrant = BASELINE
) -> list[float]:
    """Returns how far an entrant is above a baseline, by seed."""
    known, own = cells.get(baseline, {}), cells.get(entrant, {})
    return [own[seed]["auc"] - known[seed]["auc"] for seed in sorted(own.keys() & known.keys())]


def means(cells: Cells) -> list[str]:
    """Tabulates, per entrant, baseline and group of datasets, the mean difference, first within each dataset."""
    body = []
    for entrant in sorted({entrant for cell in cells.values() for entrant in cell}):
        for baseline in (BASELINE, SAME):
            for group in ("tuning", "confirmation", "all"):
                found = {
                    cell: gaps
                    for cell, entrants in cells.items()
                    if group in (_group(cell[0]), "all") and (gaps := differences(entrants, entrant, baseline))
                }
                if found and entrant not in (baseline, BASELINE):
                    body.append(
                        (_named(entrant), ", ".join(filter(None, baseline)), group, *_summary(cells, entrant, found))
                    )
    heads = (
        "search", "against", "datasets", "mean difference", "cells above", "below with p < 0.05", "worst cell",
        "cost after pretraining",
    )  # fmt: skip
    return markdown_table(heads, body)


def _summary(cells: Cells, entrant: Entrant, found: dict[Cell, list[float]]) -> tuple[str, ...]:
    """Returns the mean over datasets, how many cells are above and significantly below, the worst, and the cost."""
    mean = {cell: fmean(gaps) for cell, gaps in found.items()}
    each = [fmean(gap for cell, gap in mean.items() if cell[0] == data) for data in {cell[0] for cell in found}]
    below = sum(mean[cell] < 0 and len(gaps) > 1 and paired(gaps)[0] < 0.05 for cell, gaps in found.items())
    costs = [row["cost"] for cell in found for row in cells[cell][entrant].values()]
    return (
        f"{fmean(each):+.4f}", f"{sum(gap > 0 for gap in mean.values())} of {len(mean)}", str(below),
        f"{min(mean.values()):+.4f}", f"{fmean(costs):.2f}",
    )  # fmt: skip


def by_dataset(cells: Cells) -> list[str]:
    """Tabulates the default's mean difference per dataset and model, over the fractions of parameters."""
    models = _models(cells)
    found = {data: _by_model(cells, data, DEFAULT, BASELINE) for data in sorted({cell[0] for cell in cells})}
    body = [(data, _group(data), *each) for data, each in found.items() if each]
    return markdown_table(("dataset", "used for", *(TITLES[model] for model in models), "mean"), body)


def by_search(cells: Cells) -> list[str]:
    """Tabulates how far each other search is above the default per dataset and model, over the fractions."""
    body = []
    for entrant in sorted({entrant for cell in cells.values() for entrant in cell if entrant[2]} - {DEFAULT}):
        for data in sorted({cell[0] for cell in cells}):
            each = _by_model(cells, data, entrant, DEFAULT)
            if each:
                body.append((_named(entrant), data, *each))
    return markdown_table(("search", "dataset", *(TITLES[model] for model in _models(cells)), "mean"), body)


def _models(cells: Cells) -> list[str]:
    return sorted({cell[1] for cell in cells}, key=list(TITLES).index)


def _by_model(cells: Cells, data: str, entrant: Entrant, baseline: Entrant) -> list[str]:
    """Returns an entrant's mean difference on a dataset for each model, then of all cells; nothing if there is none."""
    gaps = {cell: differences(found, entrant, baseline) for cell, found in cells.items() if cell[0] == data}
    own = [[fmean(gap) for cell, gap in gaps.items() if cell[1] == model and gap] for model in _models(cells)]
    every = [gap for found in own for gap in found]
    return [f"{fmean(found):+.4f}" if found else "" for found in (*own, every)] if every else []


def grid(cells: Cells) -> list[str]:
    """Tabulates the default against the baseline in every cell."""
    body = []
    for cell, entrants in sorted(cells.items()):
        gaps = differences(entrants, DEFAULT)
        if gaps:
            data, model, fraction = cell
            shared = entrants[BASELINE].keys() & entrants[DEFAULT].keys()
            rows = [[entrants[entrant][seed] for seed in shared] for entrant in (BASELINE, DEFAULT)]
            body.append((
                data, TITLES[model], f"{100 * fraction:g}%", str(len(gaps)),
                *(f"{fmean(row['auc'] for row in each):.4f}" for each in rows),
                f"{fmean(gaps):+.4f}", f"{paired(gaps)[0]:.2g}" if len(gaps) > 1 else "",
                *(f"{fmean(row['cost'] for row in each):.2f}" for each in rows),
            ))  # fmt: skip
    heads = (
        "dataset", "model", "parameters", "seeds", "uniform", "default", "difference", "p", "cost of uniform",
        "cost of default",
    )  # fmt: skip
    return markdown_table(heads, body)


def searches(cells: Cells) -> list[str]:
    """Tabulates the other searches on rows with tiers in the cells that each has, and what they compete with."""
    others = {entrant for found in cells.values() for entrant in found if entrant[2] and entrant != DEFAULT}
    shared = [found for found in cells.values() if others & found.keys()]
    body = []
    for entrant in (*others, DEFAULT, SAME, BASELINE):
        own = [found for found in shared if entrant in found]
        above, beyond = (
            [fmean(gaps) for found in own if (gaps := differences(found, entrant, other))]
            for other in (BASELINE, DEFAULT)
        )
        seeds = sorted({len(found[entrant]) for found in own})
        costs = [row["cost"] for found in own for row in found[entrant].values()]
        body.append((
            fmean(beyond), _named(entrant), " to ".join(map(str, dict.fromkeys((seeds[0], seeds[-1])))),
            f"{fmean(beyond):+.4f}", f"{sum(gap > 0 for gap in beyond)} of {len(beyond)}",
            f"{fmean(above):+.4f}", f"{sum(gap > 0 for gap in above)} of {len(above)}", f"{min(above):+.4f}",
            f"{fmean(costs):.2f}",
        ))  # fmt: skip
    heads = (
        "search", "seeds", "difference to the default", "cells above the default", "difference to uniform",
        "cells above uniform", "worst cell", "cost after pretraining",
    )  # fmt: skip
    return markdown_table(heads, [row[1:] for row in sorted(body, reverse=True)])


TABLES: Final[dict[str, Callable[[Cells], list[str]]]] = {
    "means": means,
    "datasets": by_dataset,
    "grid": grid,
}


def filled(text: str, cells: Cells, others: Cells) -> str:
    """Returns the text of the page with new tables; `others` has the cells of all searches."""
    tables = {f"robust-{name}": make(cells) for name, make in TABLES.items()}
    tables |= {"robust-searches": searches(others), "robust-search-datasets": by_search(others)}
    return with_tables(text, tables.__getitem__)


def _group(data: str) -> str:
    return "confirmation" if data in CONFIRMING else "tuning"


def _named(entrant: Entrant) -> str:
    name = ", ".join(filter(None, entrant))
    return f"**{name}** (default)" if entrant == DEFAULT else name


def main() -> None:
    """Writes the page."""
    write_text(PAGE, filled(PAGE.read_text(encoding="utf-8"), read(RESULTS), read(RESULTS, SEARCHES)))


if __name__ == "__main__":
    main()
