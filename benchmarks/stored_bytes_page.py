"""Prints the tables of test AUC over stored bytes, and draws their picture.

    python benchmarks/stored_bytes_page.py benchmarks/results/bytes-movielens.jsonl --picture bytes.png

Reads what `stored_bytes.py` wrote. A cell of a table is the best of a method's stored types that fits the bytes; scales
may exceed them by 1%. The trivial answers are the full model in every type and `uniform` in every type. The test is
paired over seeds, ham against the trivial answer with the best mean on validation rows; p-values are corrected together
(Holm).
"""

import argparse
import json
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from statistics import fmean
from typing import Any, Final

from fieldwise.reports.comparison.statistics import holm, paired
from fieldwise.reports.run.markdown import markdown_table

LEVELS: Final = (4, 8, 16, 32, 64)
"""Denominators of the full float32 bytes."""
OVER: Final = 1.01
"""Scales may exceed a level by this factor."""
Rows = list[dict[str, Any]]
Key = tuple[str, float, str]
"""Method, fraction of the numbers, store."""


def read(path: Path) -> dict[str, dict[Key, Rows]]:
    """Returns the rows of each model and cell."""
    found: dict[str, dict[Key, Rows]] = defaultdict(lambda: defaultdict(list))
    for row in map(json.loads, path.read_text(encoding="utf-8").splitlines()):
        found[row["model"]][row["method"], row["fraction"], row["store"]].append(row)
    return found


def mean(rows: Rows, name: str) -> float:
    """Returns the mean of one value over seeds."""
    return fmean(row[name] for row in rows)


def fitting(cells: dict[Key, Rows], methods: Iterable[str], level: int) -> dict[Key, Rows]:
    """Returns the cells of some methods that fit a level."""
    room = OVER * mean(cells["full", 1.0, "float32"], "bytes") / level
    known = set(methods)
    return {
        key: rows
        for key, rows in cells.items()
        if key[0] in known and key[2] != "int4 after" and mean(rows, "bytes") <= room
    }


def best(cells: dict[Key, Rows]) -> tuple[Key, Rows]:
    """Returns the cell with the best mean AUC on validation rows."""
    return max(cells.items(), key=lambda item: mean(item[1], "valid"))


def front(found: dict[str, dict[Key, Rows]]) -> list[str]:
    """Returns one table per model: the best trivial answer and the best of ham at each level, and their test."""
    compared = []
    for model, cells in found.items():
        for level in LEVELS:
            trivial, ours = fitting(cells, ("full", "uniform"), level), fitting(cells, ("ham",), level)
            if trivial and ours:
                compared.append((model, level, best(trivial), best(ours)))
    differences = [_differences(a[1], b[1]) for _, _, a, b in compared]
    ps = holm([paired(each)[0] if len(each) > 1 else 1.0 for each in differences])
    heads = ("model", "bytes", "best trivial answer", "test AUC", "ham", "test AUC", "difference", "p (Holm)")
    body = [
        (
            model,
            f"{mean(found[model]['full', 1.0, 'float32'], 'bytes') / level:,.0f} (1/{level})",
            _named(a[0]),
            f"{mean(a[1], 'auc'):.4f}",
            _named(b[0]),
            f"{mean(b[1], 'auc'):.4f}",
            f"{fmean(each):+.4f}",
            f"{p:.3g}",
        )
        for (model, level, a, b), each, p in zip(compared, differences, ps, strict=True)
    ]
    return markdown_table(heads, body)


def grid(model: str, cells: dict[Key, Rows]) -> list[str]:
    """Returns all cells of a model: stored type by method and fraction of the numbers."""
    stores = list(dict.fromkeys(key[2] for key in cells))
    order = sorted({key[:2] for key in cells}, key=lambda key: (-key[1], key[0]))
    body = []
    for method, fraction in order:
        numbers = mean(next(rows for key, rows in cells.items() if key[:2] == (method, fraction)), "numbers")
        own = [cells.get((method, fraction, store)) for store in stores]
        texts = (f"{mean(rows, 'auc'):.4f} ({mean(rows, 'bytes'):,.0f})" if rows else "" for rows in own)
        body.append((f"{method}, {numbers:,.0f} numbers", *texts))
    return markdown_table((f"{model}: test AUC (bytes)", *stores), body)


def costs(found: dict[str, dict[Key, Rows]]) -> list[str]:
    """Returns the largest loss of each type against the same widths in float32, and the loss of int4 at a quarter."""
    body = []
    for store in ("float16", "int8", "int4 after", "int4"):
        losses = {}
        for model, cells in found.items():
            for (method, fraction, kind), rows in cells.items():
                plain = cells.get((method, fraction, "float32"))
                if kind == store and method != "full" and plain:
                    losses[model, method, fraction] = fmean(_differences(rows, plain))
        if losses:
            worst = max(losses, key=lambda key: losses[key])
            quarter = [loss for key, loss in losses.items() if key[2] == 0.25]
            where = f"{worst[0]}, {worst[1]}, {worst[2]:g} of the numbers"
            at_quarter = f"{-max(quarter):+.4f}" if quarter else ""
            body.append((store, f"{-losses[worst]:+.4f}", where, at_quarter))
    return markdown_table(("stored type", "worst cell", "which", "worst at a quarter of the numbers"), body)


def draw(found: dict[str, dict[Key, Rows]], path: Path) -> None:
    """Draws test AUC over stored bytes, one panel per model."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(found), figsize=(4.2 * len(found), 3.6), squeeze=False)
    marks = {"full": "D", "uniform": "s", "ham": "o"}
    tones = {"float32": "#9498a0", "float16": "#6cc5b0", "int8": "#4269d0", "int4": "#ff725c"}
    for axis, (model, cells) in zip(axes[0], found.items(), strict=True):
        for method, mark in marks.items():
            for store, tone in tones.items():
                own = [rows for key, rows in cells.items() if (key[0], key[2]) == (method, store)]
                points = sorted((mean(rows, "bytes"), mean(rows, "auc")) for rows in own)
                if points:
                    style = "-" if method == "ham" else ":"
                    label = f"{method}, {store}"
                    axis.plot(*zip(*points, strict=True), style, marker=mark, color=tone, label=label, ms=4, lw=1)
        axis.set(title=model, xscale="log", xlabel="stored bytes per model, without dense layers")
        axis.grid(alpha=0.3)
    axes[0][0].set_ylabel("test AUC")
    axes[0][-1].legend(fontsize=6)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)


def _differences(one: Rows, other: Rows) -> list[float]:
    by_seed = {row["seed"]: row["auc"] for row in other}
    if one is other:
        return []
    return [by_seed[row["seed"]] - row["auc"] for row in one if row["seed"] in by_seed]


def _named(key: Key) -> str:
    return f"{key[0]}, {key[2]}" + ("" if key[1] == 1 else f", {key[1]:g} of the numbers")


def main() -> None:
    """Prints Markdown, and writes the picture if it is named."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("rows", type=Path)
    parser.add_argument("--picture", type=Path)
    given = parser.parse_args()
    found = read(given.rows)
    parts = [front(found), costs(found), *(grid(model, cells) for model, cells in found.items())]
    print("\n".join("\n".join([*part, ""]) for part in parts))
    if given.picture:
        draw(found, given.picture)


if __name__ == "__main__":
    main()
