"""Draws the page's charts as PNG files for papers (needs the extra `plots`)."""

from collections.abc import Callable, Iterable
from importlib.util import find_spec
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, Final

from fieldwise.core.errors import SettingsError
from fieldwise.core.files import replacing
from fieldwise.core.hints import either
from fieldwise.reports.file_names import data_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Data = dict[str, Any]
DPI: Final = 200
BLUE, ORANGE, GREY = "#0b62c4", "#c0843a", "#c9d3df"
FIELDS: Final = 60
"""Maximum fields per figure; those that save the most parameters are shown."""


def of_run(data: Data, folder: Path) -> list[Path]:
    """Draws every figure that a run has data for and returns the paths."""
    drawings: list[tuple[str, float, Callable[[Axes], None]]] = []
    if data["results"]:
        drawings.append(("front", 3.2, lambda axes: _front(axes, data)))
        for budget in dict.fromkeys(result["budget"] for result in data["results"]):
            rows = _width_rows(data, budget)
            height = 1.2 + 0.22 * len(rows)
            drawings.append((f"widths-{_slug(budget)}", height, lambda axes, rows=rows: _widths(axes, rows)))  # type: ignore[misc]
    for search in data["searches"]:
        name = f"{_slug(search['budget'])}-seed-{search['seed']}" + (
            f"-part-{search['part']}" if search["part"] else ""
        )
        drawings.append((f"scores-{name}", 3.2, lambda axes, search=search: _scores(axes, search)))  # type: ignore[misc]
        drawings.append((f"live-{name}", 3.2, lambda axes, search=search: _live(axes, search)))  # type: ignore[misc]
    return _draw(drawings, folder, data["source"])


def of_comparison(data: Data, folder: Path) -> list[Path]:
    """Draws the Pareto front of every model and returns the paths."""
    models = [model for model in data["models"] if any(row["model"] == model for row in data["rows"])]
    return _draw(
        ((f"front-{_slug(model)}", 4.0, lambda axes, model=model: _fronts(axes, data, model)) for model in models),  # type: ignore[misc]
        folder,
        data["source"],
    )


def _draw(drawings: Iterable[tuple[str, float, Callable[["Axes"], None]]], folder: Path, source: str) -> list[Path]:
    """Draws figures into files whose names end with the name of the data."""
    if find_spec("matplotlib") is None:
        raise SettingsError(
            f"{either('--format png', 'The report as png')} needs the package matplotlib. Run: pip install "
            "'fieldwise[plots]'."
        )
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    paths = []
    for name, height, draw in drawings:
        figure = Figure(figsize=(5.5, height), layout="constrained")
        FigureCanvasAgg(figure)
        draw(figure.subplots())
        path = folder / f"{name}-{data_name(source)}.png"
        with replacing(path) as work:
            figure.savefig(work, dpi=DPI, format="png")
        paths.append(path)
    return paths


def _front(axes: "Axes", data: Data) -> None:
    results = data["results"]
    first = [result for result in results if result["budget"] == results[0]["budget"]]
    groups = {"full": [result["full"] for result in first]}
    for result in results:
        groups.setdefault(result["budget"], []).append(result["compact"])
    for name, sizes in groups.items():
        color = ORANGE if name == "full" else BLUE
        x, y = [size["stored"]["per_id"] for size in sizes], [size["auc"] for size in sizes]
        axes.plot(x, y, "o", color=color, alpha=0.6, markersize=4)
        axes.errorbar(
            fmean(x), fmean(y), yerr=[[fmean(y) - min(y)], [max(y) - fmean(y)]], fmt="_", color=color, capsize=3
        )
        axes.annotate(
            _plain(name), (fmean(x), max(y)), textcoords="offset points", xytext=(0, 6), ha="center", fontsize=8
        )
    axes.set(xlabel=data["size"], ylabel="test AUC", xscale="log")
    axes.margins(0.12, 0.2)
    axes.grid(alpha=0.3)


def _width_rows(data: Data, budget: str) -> list[tuple[str, float, float]]:
    results = [result for result in data["results"] if result["budget"] == budget]
    rows = []
    for j, field in enumerate(data["fields"]):
        before, after = (fmean(result[key][j] for result in results) for key in ("before", "after"))
        rows.append((field["cardinality"] * (before - after), field["name"], before, after))
    return [row[1:] for row in sorted(rows, key=lambda row: -row[0])[:FIELDS]]


def _widths(axes: "Axes", rows: list[tuple[str, float, float]]) -> None:
    places = range(len(rows))
    axes.barh(places, [before for _, before, _ in rows], color=GREY, label="full model")
    axes.barh(places, [after for _, _, after in rows], color=BLUE, height=0.5, label="compact model")
    axes.set_yticks(list(places), [_plain(name) for name, _, _ in rows], fontsize=8)
    axes.invert_yaxis()
    axes.set(xlabel="columns")
    axes.legend(fontsize=8, frameon=False, loc="lower right")


def _scores(axes: "Axes", search: Data) -> None:
    for kept, scores in zip(search["kept"], search["scores"], strict=True):
        values = [value * search["scale"] for value in scores]
        axes.plot(search["moments"], values, color=BLUE if kept else ORANGE, linewidth=0.6, alpha=0.6)
    axes.axhline(0, color="black", linewidth=0.8)
    axes.set(xlabel="steps", ylabel="score (blue: kept)")


def _live(axes: "Axes", search: Data) -> None:
    axes.plot(search["at"], search["cost"], color=BLUE, linewidth=0.8, label="live")
    axes.axhline(search["limit"], color=ORANGE, label="target")
    axes.set(xlabel="steps", ylabel=f"live {search['unit']}", ylim=(0, None))
    axes.legend(fontsize=8, frameon=False)


def _fronts(axes: "Axes", data: Data, model: str) -> None:
    for place, method in enumerate(data["methods"]):
        rows = [row for row in data["rows"] if row["model"] == model and row["method"] == method]
        x, y = [row["size"] for row in rows], [row["auc"] for row in rows]
        spread = [row["auc_std"] or 0.0 for row in rows]
        marker = "os^Dv<>Pp*X"[place % 11]
        axes.errorbar(x, y, yerr=spread, fmt=marker, markersize=5, capsize=2, label=_plain(method))
    for full in (one for one in data["full"] if one["model"] == model):
        name = "full model" if full.get("store", "float32") == "float32" else f"full model, {full['store']}"
        axes.plot([full["size"]], [full["auc"]], "k*", label=name)
    axes.set(xlabel=data["size"], ylabel="test AUC", xscale="log", title=_plain(model))
    axes.grid(alpha=0.3)
    axes.legend(fontsize=7, frameon=False)


def _plain(text: str) -> str:
    """Escapes text so that matplotlib does not parse it as math."""
    return text.replace("$", r"\$")


def _slug(text: str) -> str:
    return "".join(sign if sign.isalnum() or sign in "-_" else "-" for sign in text.replace("%", "pct"))
