"""The picture of test AUC over stored bytes."""

from pathlib import Path
from typing import TYPE_CHECKING, Final

from evidence.pictures import TITLES, note
from evidence.stored_bytes_rows import LEVELS, Cells, Models, count, full_bytes, mean
from fieldwise.core.files import replacing

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TONES: Final = {"float32": "#8a97a6", "float16": "#2a8a57", "int8": "#0b62c4", "int4": "#c33f4f"}
MARKS: Final = {"full": ("D", "none"), "uniform": ("s", ":"), "ham": ("o", "-")}
"""Marker and line of each method."""
DEPTH: Final = 0.02
"""Depth of a panel below the full model's AUC; what is lower is cut off."""


def draw(found: Models, mark: str, path: Path) -> None:
    """Draws test AUC over stored bytes, one panel per model, as PNG with a mark of its data."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    across = min(2, len(found))
    figure = Figure(figsize=(4.6 * across, 0.9 + 3.1 * -(-len(found) // across)), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(-(-len(found) // across), across, squeeze=False).flat
    for axes, (model, cells) in zip(panels, found.items(), strict=False):
        _panel(axes, cells)
        axes.set_title(TITLES.get(model, model), fontsize=10)
    for axes in list(panels)[len(found) :]:
        axes.set_axis_off()
    lines, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(lines, labels, loc="outside lower center", ncols=4, fontsize=8, frameon=False)
    note(figure, f"tables, first-order weights and scales, without dense layers; mean of {count(found)} seeds")
    with replacing(path) as work:
        figure.savefig(work, dpi=130, format="png", metadata={"Description": mark, "Software": None})


def _panel(axes: "Axes", cells: Cells) -> None:
    full = mean(cells["full", 1.0, "float32"], "auc")
    axes.axhline(full, color="black", linewidth=0.8, linestyle="--")
    for method, (marker, style) in MARKS.items():
        for store, tone in TONES.items():
            own = [rows for key, rows in cells.items() if (key[0], key[2]) == (method, store)]
            points = sorted((mean(rows, "bytes"), mean(rows, "auc")) for rows in own)
            if points:
                name = "full model" if method == "full" else method
                axes.plot(
                    *zip(*points, strict=True), marker=marker, linestyle=style, color=tone, label=f"{name}, {store}",
                    markersize=6 if method == "full" else 4, linewidth=1.2, zorder=4 if method == "full" else 3,
                    markerfacecolor="white" if method == "uniform" else tone,
                )  # fmt: skip
    axes.set_ylim(bottom=max(axes.get_ylim()[0], full - DEPTH))
    whole = full_bytes(cells)
    axes.set(
        xscale="log",
        xlabel="stored bytes, of the full float32 model",
        ylabel="test AUC",
        xlim=(whole / 90, whole * 1.35),
    )
    ticks = (1, 2, *LEVELS)
    axes.set_xticks([whole / level for level in ticks], ["1", *(f"1/{level}" for level in ticks[1:])])
    axes.minorticks_off()
    axes.grid(alpha=0.3)
