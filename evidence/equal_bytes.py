"""Writes the tables of the default search at equal stored bytes: `python -m evidence.equal_bytes`.

Reads what `benchmarks/equal_bytes.py` wrote to `benchmarks/results/equal_bytes.jsonl` and, with `--plain`, to
`equal_bytes_plain.jsonl` beside it. Writes `docs/results/beyond.md`, its picture, and the table of README.md.
"""

import json
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from typing import Any, Final

from evidence.page import with_tables
from evidence.pictures import TITLES, fingerprint, note
from fieldwise.core.files import replacing, write_text
from fieldwise.reports.comparison.statistics import holm, paired
from fieldwise.reports.run.markdown import markdown_table

ROOT: Final = Path(__file__).resolve().parent.parent
RESULTS: Final = ROOT / "benchmarks" / "results" / "equal_bytes.jsonl"
PLAIN: Final = RESULTS.with_name("equal_bytes_plain.jsonl")
PAGE: Final = ROOT / "docs" / "results" / "beyond.md"
PAGES: Final = (PAGE, ROOT / "README.md")
IMAGES: Final = PAGE.parent / "images"
ORTHOGONAL: Final = PAGE.parent / "data" / "figure-2.json"
"""Models pretrained as in the paper."""
DEFAULT: Final = "elimination"
PLAIN_UNIFORM: Final = "plain uniform"
STORE: Final = "mixed"
"""What a budget with `auto` chooses at an eighth of the bytes or less: int4, and int8 for some fields,"""
UNIFORM_STORE: Final = "int4"
"""and what one width for all fields is best in."""
TUNED: Final = {"fm": 4, "deepfm": 4, "autoint": 8, "dcnv2": 4}
"""Seeds below these were in trials that chose how much int8 must save."""
SLACK: Final = 1.01
"""Scales of integers may exceed a share by 1%."""

Entrant = tuple[str, int, str]
"""Method, share and stored type."""
Found = dict[Entrant, dict[int, dict[str, Any]]]
Models = dict[str, dict[int, Found]]
"""The rows of the measurement, by model and share."""


def read(own: Path, plain: Path | None = None) -> Models:
    """Returns, for every model and share, all rows of the measurement, and those of plain trainings."""
    rows, extra = _rows(own), _rows(plain) if plain else {}
    return {
        model: {share: {**rows[model], **extra.get(model, {})} for share in sorted(_shares(rows[model]))}
        for model in TITLES
        if model in rows
    }


def _rows(path: Path) -> dict[str, Found]:
    """Returns the rows of a file by model, entrant and seed."""
    models: dict[str, Found] = defaultdict(lambda: defaultdict(dict))
    for line in path.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        models[row["model"]][row["method"], row["share"], row["store"]][row["seed"]] = row
    return models


def _shares(found: Found) -> set[int]:
    return {share for method, share, _ in found if method == DEFAULT}


def default(share: int) -> Entrant:
    """Returns the default at a share."""
    return DEFAULT, share, STORE


def trivial(found: Found, share: int, uniform: str = "uniform") -> Entrant:
    """Returns the best answer without a search, by mean test AUC over common seeds: uniform, or full if it fits."""
    whole = _mean(found["full", 1, "float32"], "bytes")
    fitting = [
        entrant
        for entrant, rows in found.items()
        if (entrant[0] == uniform and entrant[1] == share)
        or (entrant[0] == "full" and _mean(rows, "bytes") <= SLACK * whole / share)
    ]
    seeds = set.intersection(*(set(found[entrant]) for entrant in fitting))
    return max(fitting, key=lambda entrant: fmean(found[entrant][seed]["auc"] for seed in seeds))


def front(models: Models) -> list[str]:
    """Tabulates the default against the best trivial answer and the full float32 model, with Holm's correction."""
    return _compared(models, "uniform", "best without a search")


def plain(models: Models) -> list[str]:
    """Tabulates the same, with answers that are trained plainly."""
    return _compared(models, PLAIN_UNIFORM, "best without this retraining")


def _compared(models: Models, uniform: str, title: str) -> list[str]:
    body, values = [], []
    for model, share, found in ((model, *cell) for model, cells in models.items() for cell in cells.items()):
        best, own, full = trivial(found, share, uniform), default(share), ("full", 1, "float32")
        gaps, seeds = _gaps(found, own, best), found[own].keys() & found[best].keys()
        values.append(paired(gaps)[0] if len(gaps) > 1 else 1.0)
        aucs = [fmean(found[entrant][seed]["auc"] for seed in seeds) for entrant in (full, best, own)]
        body.append((
            TITLES[model], f"1/{share}", str(len(gaps)), f"{aucs[0]:.4f}", f"{best[0]} {best[2]} {aucs[1]:.4f}",
            f"{aucs[2]:.4f}", f"{fmean(gaps):+.4f}", f"{aucs[2] - aucs[0]:+.4f}", f"{_cost(found, best):.2f}",
            f"{_cost(found, own):.2f}",
        ))  # fmt: skip
    heads = ("model", "bytes", "seeds", "full float32", title, "default", "default less it", "default less full",
             "cost of it", "cost of default", "p", "p, Holm")  # fmt: skip
    both = zip(body, values, holm(values), strict=True)
    return markdown_table(heads, [(*row, f"{p:.2g}", f"{corrected:.2g}") for row, p, corrected in both])


def untuned(models: Models) -> list[str]:
    """Tabulates the default against the best trivial answer on the seeds that were not used for tuning."""
    body = []
    for model, share, found in ((model, *cell) for model, cells in models.items() for cell in cells.items()):
        gaps = _gaps(found, default(share), trivial(found, share), TUNED[model])
        if gaps:
            p = f"{paired(gaps)[0]:.2g}" if len(gaps) > 1 else ""
            body.append((TITLES[model], f"1/{share}", str(len(gaps)), f"{fmean(gaps):+.4f}", p))
    return markdown_table(("model", "bytes", "seeds", "default less the best without a search", "p"), body)


def full(models: Models) -> list[str]:
    """Tabulates the full models: of the default pretraining, and of the paper's orthogonality."""
    own: dict[str, list[float]] = defaultdict(list)
    for cell in json.loads(ORTHOGONAL.read_text(encoding="utf-8"))["full"]:
        own[cell["model"]].append(cell["auc"])
    rows = [(_full(cells, "auc"), fmean(own[model])) for model, cells in models.items()]
    body = [
        (name, *(f"{row[place]:.4f}" for row in rows))
        for place, name in enumerate(("default pretraining", "the paper's orthogonality"))
    ]
    return markdown_table(("full float32 model", *(TITLES[model] for model in models)), body)


def _gaps(found: Found, entrant: Entrant, other: Entrant, first: int = 0) -> list[float]:
    """Returns how far an entrant is above another, by seed from the first on."""
    own, known = found[entrant], found[other]
    return [own[seed]["auc"] - known[seed]["auc"] for seed in sorted(own.keys() & known.keys()) if seed >= first]


def _cost(found: Found, entrant: Entrant) -> float:
    """Returns the time of search and retraining over that of pretraining; 0 for the full model."""
    if entrant[0] == "full":
        return 0.0
    return fmean(row["seconds"] / row["pretraining"] for row in found[entrant].values())


def _mean(rows: dict[int, dict[str, Any]], name: str) -> float:
    return fmean(row[name] for row in rows.values())


def short(models: Models) -> list[str]:
    """Tabulates, for README.md, the full model, the best answer without a search and the default."""
    body = [("1", "full model, float32", *(f"{_full(cells, 'auc'):.4f}" for cells in models.values()))]
    for share in next(iter(models.values())):
        each = [cells[share] for cells in models.values()]
        assert all(trivial(found, share)[2] == UNIFORM_STORE for found in each)
        rows = {
            "one width for all fields, int4": [_mean(found[trivial(found, share)], "auc") for found in each],
            "the default, int4 and int8": [_mean(found[default(share)], "auc") for found in each],
        }
        texts = {name: [f"{auc:.4f}" for auc in aucs] for name, aucs in rows.items()}
        tops = [max(column) for column in zip(*texts.values(), strict=True)]
        for name, shown in texts.items():
            marked = (f"**{text}**" if text == top else text for text, top in zip(shown, tops, strict=True))
            body.append((f"1/{share}", name, *marked))
    sizes = sorted(_full(cells, "bytes") / 1000 for cells in models.values())
    heads = (f"bytes, of {sizes[0]:.0f} to {sizes[-1]:.0f} KB", f"test AUC, mean of {_seeds(models)} seeds")
    return markdown_table((*heads, *(TITLES[model] for model in models)), body)


def draw(models: Models, mark: str, path: Path) -> None:
    """Draws test AUC over stored bytes, one panel per model, as PNG with a mark of its data."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.2, 6.6), layout="constrained")
    FigureCanvasAgg(figure)
    lines: dict[str, tuple[Callable[[Found, int], Entrant], str, str]] = {
        "the default, int4 and int8": (lambda _, share: default(share), "o-", "#c33f4f"),
        "one width for all fields, int4": (lambda _, share: ("uniform", share, UNIFORM_STORE), "s:", "#0b62c4"),
    }
    for axes, (model, cells) in zip(figure.subplots(2, 2).flat, models.items(), strict=False):
        axes.axhline(_full(cells, "auc"), color="black", linewidth=0.8, linestyle="--", label="full model, float32")
        for name, (entrant, style, tone) in lines.items():
            points = [(1 / share, _mean(found[entrant(found, share)], "auc")) for share, found in cells.items()]
            axes.plot(*zip(*points, strict=True), style, color=tone, label=name, markersize=4, linewidth=1.3)
        axes.set(xscale="log", title=TITLES[model], xlabel="stored bytes, of the full float32 model", ylabel="test AUC")
        axes.set_xticks([1 / share for share in cells], [f"1/{share}" for share in cells])
        axes.minorticks_off()
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, fontsize=8, frameon=False)
    note(figure, f"MovieLens-1M; tables, first-order weights and scales; mean of {_seeds(models)} seeds")
    with replacing(path) as work:
        figure.savefig(work, dpi=130, format="png", metadata={"Description": mark, "Software": None})


def _full(cells: dict[int, Found], name: str) -> float:
    """Returns the mean of the full float32 model."""
    return _mean(next(iter(cells.values()))["full", 1, "float32"], name)


def _seeds(models: Models) -> str:
    """Returns how many seeds the cells have."""
    counts = {len(found[default(share)]) for cells in models.values() for share, found in cells.items()}
    return " to ".join(map(str, dict.fromkeys((min(counts), max(counts)))))


TABLES: Final[dict[str, Callable[[Models], list[str]]]] = {
    "front": front, "untuned": untuned, "plain": plain, "full": full, "short": short,
}  # fmt: skip


def filled(text: str, models: Models, images: str = "images") -> str:
    """Returns the text of a page with its tables and its picture made anew."""
    picture = [f"![Test AUC over stored bytes]({images}/equal-bytes.png)"]
    return with_tables(
        text, lambda name: TABLES[name.removeprefix("equal-")](models) if name != "equal-bytes" else picture
    )


def main() -> None:
    """Writes the pages and the picture."""
    models = read(RESULTS, PLAIN)
    for page in PAGES:
        images = IMAGES.relative_to(page.parent).as_posix()
        write_text(page, filled(page.read_text(encoding="utf-8"), models, images))
    draw(models, fingerprint([RESULTS]), IMAGES / "equal-bytes.png")


if __name__ == "__main__":
    main()
