"""Figures shared by several pages (extra `plots`); each PNG contains a fingerprint of its data."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from statistics import stdev
from typing import TYPE_CHECKING, Final

from evidence.data import Evidence
from evidence.grid import Grid, mean
from evidence.page import Item
from fieldwise.core.files import replacing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BLUE, ORANGE, GREY = "#0b62c4", "#c0843a", "#8a97a6"
COLORS: Final = (BLUE, ORANGE, "#2a8a57", "#8a4fb0", GREY, "#c33f4f", "#3aa6b9", "#70601f")
MARKS: Final = "osD^vP*X"
CUT: Final = 0.02
SIZE: Final = (7.5, 5.6)
TITLES: Final = {"fm": "FM", "deepfm": "DeepFM", "autoint": "AutoInt", "dcnv2": "DCN-V2"}


def fingerprint(paths: Sequence[Path]) -> str:
    """Returns the fingerprint of the data files of a figure."""
    total = hashlib.sha256(b"".join(hashlib.sha256(path.read_bytes()).digest() for path in paths))
    return f"evidence-{total.hexdigest()[:16]}"


def draw(item: Item, data: Sequence[Evidence], mark: str, path: Path) -> None:
    """Draws one figure as PNG."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=SIZE, layout="constrained")
    FigureCanvasAgg(figure)
    item.make(figure, *data)
    with replacing(path) as work:
        figure.savefig(work, dpi=130, format="png", metadata={"Description": mark, "Software": None})


def note(figure: "Figure", text: str) -> None:
    """Sets the title of a figure."""
    figure.suptitle(text, fontsize=9)


def fronts(figure: "Figure", evidence: Evidence) -> None:
    """Draws test AUC against embedding parameters, one panel per model and one line per method over budgets."""
    grid = Grid(evidence)
    across = 2 if len(grid.models) > 1 else 1
    panels = figure.subplots(-(-len(grid.models) // across), across, squeeze=False).flat
    for axes, model in zip(panels, grid.models, strict=False):
        for place, method in enumerate(grid.methods):
            groups = [grid.cells(model, budget, method) for budget in grid.budgets]
            x, y = [mean(group, lambda cell: cell.embedding) for group in groups], [mean(group) for group in groups]
            spread = [stdev(cell.auc for cell in group) if len(group) > 1 else 0.0 for group in groups]
            axes.errorbar(
                x, y, yerr=spread, fmt=f"-{MARKS[place % 8]}", color=COLORS[place % 8], markersize=4,
                linewidth=1, elinewidth=0.6, capsize=2, label=method,
            )  # fmt: skip
        full = mean(grid.full(model))
        axes.axhline(full, color="black", linewidth=0.8, linestyle=":", label="full model")
        base = min(mean(grid.cells(model, budget, "uniform")) for budget in grid.budgets)
        axes.set_ylim(bottom=max(axes.get_ylim()[0], base - CUT))
        axes.set_title(TITLES.get(model, model), fontsize=9)
        axes.set(xlabel="embedding parameters", ylabel="test AUC")
        axes.xaxis.set_major_formatter(lambda value, _: f"{value / 1000:.0f}k")
        axes.grid(alpha=0.3)
    lines, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(lines, labels, loc="outside lower center", ncols=len(labels), fontsize=8, frameon=False)
    seeds = len({cell.seed for cell in evidence.cells})
    low = f"cut off {CUT} below the lowest of uniform"
    note(figure, f"mean and standard deviation of {seeds} seeds; budgets {', '.join(grid.budgets)}\n{low}")


def gaps(figure: "Figure", *data: Evidence) -> None:
    """Draws the test AUC of every method minus that of `uniform`, for each dataset and model."""
    panels = figure.subplots(1, len(data), squeeze=False).flat
    for axes, evidence in zip(panels, data, strict=True):
        grid = Grid(evidence)
        others = [method for method in grid.methods if method != "uniform"]
        for place, (model, budget) in enumerate(grid.places):
            base = {cell.seed: cell.auc for cell in grid.cells(model, budget, "uniform")}
            for shift, method in enumerate(others):
                values = [cell.auc - base[cell.seed] for cell in grid.cells(model, budget, method)]
                at = place + 0.22 * (shift - (len(others) - 1) / 2)
                color = COLORS[shift]
                axes.plot([at] * len(values), values, ".", color=color, alpha=0.5, markersize=4)
                label = method if place == 0 else None
                axes.plot([at - 0.08, at + 0.08], [sum(values) / len(values)] * 2, color=color, label=label)
        axes.axhline(0, color="black", linewidth=0.8)
        labels = [f"{TITLES.get(model, model)}\n{budget.split()[0]}" for model, budget in grid.places]
        axes.set_xticks(range(len(labels)), labels, fontsize=7, rotation=90 if len(labels) > 4 else 0)
        axes.set_title(evidence.about.name, fontsize=9)
        axes.grid(alpha=0.3, axis="y")
    figure.axes[0].set_ylabel("test AUC less uniform's")
    figure.axes[0].legend(fontsize=8, frameon=False)
    note(figure, "each point one seed, bars their means")
