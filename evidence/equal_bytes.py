"""Writes the tables of the default search at equal stored bytes: `python -m evidence.equal_bytes`.

Reads what `benchmarks/equal_bytes.py` wrote to `benchmarks/results/equal_bytes.jsonl`, and writes
`docs/results/equal-bytes.md`.
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
from fieldwise.reports.comparison.statistics import holm, paired
from fieldwise.reports.run.markdown import markdown_table

ROOT: Final = Path(__file__).resolve().parent.parent
RESULTS: Final = ROOT / "benchmarks" / "results" / "equal_bytes.jsonl"
PAGE: Final = ROOT / "docs" / "results" / "equal-bytes.md"
DEFAULT: Final = "elimination"
STORE: Final = "int4"
"""What a budget with `auto` chooses at an eighth of the bytes or less."""
SLACK: Final = 1.01
"""Scales of integers may exceed a share by 1%."""

Entrant = tuple[str, int, str]
"""Method, share and stored type."""
Found = dict[Entrant, dict[int, dict[str, Any]]]
Models = dict[str, Found]


def read(path: Path) -> Models:
    """Returns the rows by model, entrant and seed."""
    models: Models = defaultdict(lambda: defaultdict(dict))
    for line in path.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        models[row["model"]][row["method"], row["share"], row["store"]][row["seed"]] = row
    return {model: models[model] for model in TITLES if model in models}


def shares(found: Found) -> list[int]:
    """Returns the shares that were measured."""
    return sorted({share for method, share, _ in found if method == DEFAULT})


def trivial(found: Found, share: int) -> Entrant:
    """Returns the best answer without a search by mean test AUC: uniform, or the full model if it fits."""
    whole = _mean(found["full", 1, "float32"], "bytes")
    fitting = [
        entrant
        for entrant, rows in found.items()
        if (entrant[0] == "uniform" and entrant[1] == share)
        or (entrant[0] == "full" and _mean(rows, "bytes") <= SLACK * whole / share)
    ]
    return max(fitting, key=lambda entrant: _mean(found[entrant], "auc"))


def front(models: Models) -> list[str]:
    """Tabulates the default against the best trivial answer and the full float32 model, with Holm's correction."""
    cells = [(model, share) for model, found in models.items() for share in shares(found)]
    body, values = [], []
    for model, share in cells:
        found = models[model]
        best, own, full = trivial(found, share), (DEFAULT, share, STORE), ("full", 1, "float32")
        gaps = _gaps(found, own, best)
        values.append(paired(gaps)[0] if len(gaps) > 1 else 1.0)
        name = f"{best[0]} {best[2]}"
        body.append((
            TITLES[model], f"1/{share}", str(len(gaps)), f"{_mean(found[full], 'auc'):.4f}",
            f"{name} {_mean(found[best], 'auc'):.4f}", f"{_mean(found[own], 'auc'):.4f}",
            f"{fmean(gaps):+.4f}", f"{fmean(_gaps(found, own, full)):+.4f}",
        ))  # fmt: skip
    heads = ("model", "bytes", "seeds", "full float32", "best without a search", "default", "default less it",
             "default less full", "p", "p, Holm")  # fmt: skip
    both = zip(body, values, holm(values), strict=True)
    return markdown_table(heads, [(*row, f"{p:.2g}", f"{corrected:.2g}") for row, p, corrected in both])


def stores(models: Models) -> list[str]:
    """Tabulates both methods in both stored types."""
    body = []
    for model, found in models.items():
        for share in shares(found):
            each = [(method, share, store) for method in ("uniform", DEFAULT) for store in ("int8", "int4")]
            body.append((TITLES[model], f"1/{share}", *(f"{_mean(found[entrant], 'auc'):.4f}" for entrant in each)))
    return markdown_table(("model", "bytes", "uniform int8", "uniform int4", "default int8", "default int4"), body)


def _gaps(found: Found, entrant: Entrant, other: Entrant) -> list[float]:
    own, known = found[entrant], found[other]
    return [own[seed]["auc"] - known[seed]["auc"] for seed in sorted(own.keys() & known.keys())]


def _mean(rows: dict[int, dict[str, Any]], name: str) -> float:
    return fmean(row[name] for row in rows.values())


TABLES: Final[dict[str, Callable[[Models], list[str]]]] = {"front": front, "stores": stores}


def filled(text: str, models: Models) -> str:
    """Returns the text of the page with its tables made anew."""
    return with_tables(text, lambda name: TABLES[name.removeprefix("equal-")](models))


def main() -> None:
    """Writes the page."""
    write_text(PAGE, filled(PAGE.read_text(encoding="utf-8"), read(RESULTS)))


if __name__ == "__main__":
    main()
