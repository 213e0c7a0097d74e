"""Writes the tables of searches over several datasets: `python -m evidence.robust`.

Reads what `benchmarks/robust.py` wrote to `benchmarks/results/robust.jsonl`, and writes `docs/results/robust.md`.
"""

import json
import re
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from typing import Any, Final

from evidence.pictures import TITLES
from fieldwise.core.files import write_text
from fieldwise.reports.comparison.statistics import paired
from fieldwise.reports.run.markdown import markdown_table

ROOT: Final = Path(__file__).resolve().parent.parent
RESULTS: Final = ROOT / "benchmarks" / "results" / "robust.jsonl"
PAGE: Final = ROOT / "docs" / "results" / "robust.md"
TIERS: Final = "-tiers"
"""Ends the name of a dataset with tiers."""
CONFIRMING: Final = ("census", "reviews")
"""Datasets on which nothing was chosen."""
BASELINE: Final = ("uniform", "constant", "")
DEFAULT: Final = ("elimination", "decay", "tiers")
_MADE: Final = re.compile(r"<!-- table robust-(?P<name>[a-z]+) -->\n.*?<!-- end -->", re.DOTALL)

Entrant = tuple[str, str, str]
"""Search, schedule of the retraining, and `tiers` or nothing."""
Cell = tuple[str, str, float]
"""Dataset, model and fraction of the parameters."""
Cells = dict[Cell, dict[Entrant, dict[int, dict[str, Any]]]]


def read(path: Path) -> Cells:
    """Returns the rows by cell, entrant and seed."""
    cells: Cells = defaultdict(lambda: defaultdict(dict))
    for line in path.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        data, model, seed = row["unit"]
        if row["method"] != "full":
            entrant = row["method"], row["schedule"], "tiers" if data.endswith(TIERS) else ""
            cells[data.removesuffix(TIERS), model, row["fraction"]][entrant][seed] = row
    return cells


def differences(cells: dict[Entrant, dict[int, dict[str, Any]]], entrant: Entrant) -> list[float]:
    """Returns how far an entrant is above the baseline, by seed."""
    known, own = cells.get(BASELINE, {}), cells.get(entrant, {})
    return [own[seed]["auc"] - known[seed]["auc"] for seed in sorted(own.keys() & known.keys())]


def means(cells: Cells) -> list[str]:
    """Tabulates, per entrant and group of datasets, the mean difference, first within each dataset."""
    body = []
    for entrant in sorted({entrant for cell in cells.values() for entrant in cell}):
        for group, confirming in (("tuning", False), ("confirmation", True)):
            found = {
                cell: fmean(gaps)
                for cell, entrants in cells.items()
                if (cell[0] in CONFIRMING) == confirming and (gaps := differences(entrants, entrant))
            }
            if found and entrant != BASELINE:
                costs = [row["cost"] for cell in found for row in cells[cell][entrant].values()]
                each = [fmean(gap for cell, gap in found.items() if cell[0] == data) for data in {c[0] for c in found}]
                above = f"{sum(gap > 0 for gap in found.values())} of {len(found)}"
                body.append((
                    _named(entrant), group, f"{fmean(each):+.4f}", above, f"{min(found.values()):+.4f}",
                    f"{fmean(costs):.2f}",
                ))  # fmt: skip
    heads = ("search", "datasets", "mean difference", "cells above", "worst cell", "cost after pretraining")
    return markdown_table(heads, body)


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


TABLES: Final[dict[str, Callable[[Cells], list[str]]]] = {"means": means, "grid": grid}


def filled(text: str, cells: Cells) -> str:
    """Returns the text of the page with its tables made anew."""

    def made(match: re.Match[str]) -> str:
        return "\n".join([f"<!-- table robust-{match['name']} -->", *TABLES[match["name"]](cells), "<!-- end -->"])

    return _MADE.sub(made, text)


def _named(entrant: Entrant) -> str:
    name = ", ".join(filter(None, entrant))
    return f"**{name}** (default)" if entrant == DEFAULT else name


def main() -> None:
    """Writes the page."""
    write_text(PAGE, filled(PAGE.read_text(encoding="utf-8"), read(RESULTS)))


if __name__ == "__main__":
    main()
