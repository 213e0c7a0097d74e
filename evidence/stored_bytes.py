"""Writes the tables and pictures of test AUC over stored bytes: `python -m evidence.stored_bytes`.

Reads what `benchmarks/stored_bytes.py` wrote to `benchmarks/results`, and writes `docs/results/bytes.md` and its
pictures. Parts whose results are missing are marked as such.
"""

from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import fmean
from typing import Final

from evidence.page import OPEN, with_tables
from evidence.pictures import TITLES, fingerprint
from evidence.stored_bytes_picture import draw
from evidence.stored_bytes_rows import (
    LEVELS,
    TYPES,
    Key,
    Models,
    best,
    differences,
    fitting,
    full_bytes,
    mean,
    read,
)
from fieldwise.core.files import write_text
from fieldwise.reports.comparison.statistics import holm, paired
from fieldwise.reports.run.markdown import markdown_table

ROOT: Final = Path(__file__).resolve().parent.parent
RESULTS: Final = ROOT / "benchmarks" / "results"
IMAGES: Final = ROOT / "docs" / "results" / "images"
PAGES: Final = (ROOT / "docs" / "results" / "bytes.md",)
DATA: Final = {"movielens": "bytes-movielens.jsonl", "criteo": "bytes-criteo.jsonl", "decay": "bytes-decay.jsonl"}
DRAWN: Final = ("movielens", "criteo")
"""Data of a picture."""
QUARTER: Final = 0.25
"""Fraction of the numbers: 54,000 of the 215,097 in the tables of DCN-V2 on MovieLens-1M."""


def seeds(found: Models) -> list[str]:
    """Says how many seeds each model has."""
    counts = [f"{_title(model)} {len(cells['full', 1.0, 'float32'])}" for model, cells in found.items()]
    return [f"Seeds: {', '.join(counts)}."]


def front(found: Models) -> list[str]:
    """Tabulates the best trivial answer and the best of ham at each level, and their paired test."""
    compared = []
    for model, cells in found.items():
        for level in LEVELS:
            trivial, ours = fitting(cells, ("full", "uniform"), level), fitting(cells, ("ham",), level)
            if trivial and ours:
                compared.append((model, level, best(trivial), best(ours)))
    gaps = [differences(a[1], b[1]) for _, _, a, b in compared]
    ps = holm([paired(each)[0] if len(each) > 1 else 1.0 for each in gaps])
    body = [
        (
            _title(model),
            f"{full_bytes(found[model]) / level:,.0f} (1/{level})",
            *(
                cell
                for key, rows in (a, b)
                for cell in (_named(key), f"{mean(rows, 'bytes'):,.0f}", f"{mean(rows, 'auc'):.4f}")
            ),
            f"{fmean(each):+.4f}",
            f"{p:.2g}" if len(each) > 1 else "",
            _verdict(fmean(each), p),
        )
        for (model, level, a, b), each, p in zip(compared, gaps, ps, strict=True)
    ]
    heads = ("best trivial answer", "bytes", "test AUC", "ham", "bytes", "test AUC", "difference", "p (Holm)", "ham is")
    return markdown_table(("model", "limit in bytes", *heads), body)


def costs(found: Models) -> list[str]:
    """Tabulates the mean loss of each type against the same widths in float32: all cells, and at a quarter."""
    body = []
    for store in ("float16", "int8", "int4 after", "int4"):
        losses: dict[tuple[str, str, float], float] = {}
        for model, cells in found.items():
            for (method, fraction, kind), rows in cells.items():
                plain = cells.get((method, fraction, "float32"))
                if kind == store and plain:
                    losses[model, method, fraction] = fmean(differences(plain, rows))
        if losses:
            worst = min(losses, key=lambda key: losses[key])
            quarter = {key: loss for key, loss in losses.items() if key[1:] == ("ham", QUARTER)}
            at_quarter = ", ".join(f"{_title(key[0])} {loss:+.4f}" for key, loss in quarter.items())
            where = f"{_title(worst[0])}, {_named((*worst[1:], ''))}"
            over = sum(loss < -0.0002 for loss in losses.values())
            body.append((TYPES[store], len(losses), f"{losses[worst]:+.4f}", where, over, at_quarter))
    heads = (
        "stored type",
        "cells",
        "worst cell",
        "which",
        "cells that lose more than 0.0002",
        "ham at a quarter of the numbers",
    )
    return markdown_table(heads, body)


def grid(found: Models) -> list[str]:
    """Tabulates all cells of all models: stored type by method and fraction of the numbers."""
    lines: list[str] = []
    for model, cells in found.items():
        stores = [store for store in TYPES if any(key[2] == store for key in cells)]
        body = []
        for method, fraction in sorted({key[:2] for key in cells}, key=lambda key: (-key[1], key[0])):
            own = {store: cells.get((method, fraction, store)) for store in stores}
            numbers = mean(next(rows for rows in own.values() if rows), "numbers")
            texts = (f"{mean(rows, 'auc'):.4f} ({mean(rows, 'bytes'):,.0f})" if rows else "" for rows in own.values())
            body.append((method, f"{numbers:,.0f}", *texts))
        heads = (f"{_title(model)}: test AUC (bytes)", "numbers", *(TYPES[store] for store in stores))
        lines += [*markdown_table(heads, body), ""]
    return lines[:-1]


TABLES: Final[dict[str, Callable[[Models], list[str]]]] = {
    "seeds": seeds, "front": front, "costs": costs, "grid": grid,
}  # fmt: skip


def filled(text: str, results: Path, images: str) -> str:
    """Returns a page with its tables and links to pictures; those without results are marked as such."""

    def lines(name: str) -> list[str]:
        data, _, table = name.removeprefix("bytes-").partition("-")
        path = results / DATA[data]
        if not path.exists():
            return [OPEN]
        return TABLES[table](read(path)) if table else [f"![Test AUC over stored bytes]({images}/{name}.png)"]

    return with_tables(text, lines)


def main() -> None:
    """Writes the pages and the pictures."""
    for page in PAGES:
        images = IMAGES.relative_to(page.parent).as_posix()
        write_text(page, filled(page.read_text(encoding="utf-8"), RESULTS, images))
    for name in DRAWN:
        file = DATA[name]
        if (RESULTS / file).exists():
            draw(read(RESULTS / file), fingerprint([RESULTS / file]), IMAGES / f"bytes-{name}.png")


def _title(model: str) -> str:
    return TITLES.get(model, model)


def _named(key: Key) -> str:
    method, fraction, store = key
    texts: Iterable[str] = (method, TYPES.get(store, store), "" if fraction == 1 else f"{fraction:.3g} of the numbers")
    return ", ".join(text for text in texts if text)


def _verdict(difference: float, p: float) -> str:
    if p >= 0.05:
        return "not different"
    return "better" if difference > 0 else "worse"


if __name__ == "__main__":
    main()
