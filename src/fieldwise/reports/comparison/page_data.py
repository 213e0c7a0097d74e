"""Prepares the data of a comparison's page from `comparison.json`."""

from collections.abc import Iterable, Mapping
from statistics import fmean
from typing import Any, Final

from fieldwise.core.errors import RunError
from fieldwise.core.harm import sentence
from fieldwise.core.hints import either
from fieldwise.core.records import Harm
from fieldwise.reports.comparison.differences import differences
from fieldwise.reports.run import stored

FORMAT: Final = "fieldwise-comparison/1"
PARAMETERS: Final = "embedding parameters"
"""What the size of a row counts; parameters for comparisons of older versions."""


def comparison_data(value: Any) -> dict[str, Any]:
    """Returns the data of the page; cells that failed or have not run become notices."""
    found = value.get("format") if isinstance(value, Mapping) else None
    if found != FORMAT:
        raise RunError(f"Not a comparison: format {found!r:.80}. Allowed: {FORMAT!r}. Name the folder of a comparison.")
    try:
        return _data(value)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise RunError(
            f"A damaged comparison ({error!r}). Run {either('`fieldwise compare`', 'fw.compare')} again to rewrite it."
        ) from error


def _data(value: Mapping[str, Any]) -> dict[str, Any]:
    cells = value["cells"]
    complete = [cell for cell in cells if cell["record"] is not None]
    first = complete[0]["record"] if complete else None
    methods = list(dict.fromkeys(cell["method"] for cell in cells))
    in_bytes = all(one.get("bytes") is not None for one in (*value["rows"], *value["full"]))
    source = first["source"] if first else value["settings"].get("data", {}).get("name", "")
    return {
        "kind": "comparison",
        "title": f"{len(methods)} methods on {source}",
        "source": source,
        "headline": _headline(value),
        "harms": harms((cell["model"], cell["seed"], cell["record"].get("harms", [])) for cell in complete),
        "notices": _notices(cells),
        "methods": methods,
        "models": list(dict.fromkeys(cell["model"] for cell in cells)),
        "budgets": list(dict.fromkeys(cell["budget"] for cell in cells)),
        "baseline": value["baseline"],
        "comparisons": value["comparisons"],
        "jobs": value["jobs"],
        "size": stored.BYTES if in_bytes else PARAMETERS,
        "full": [{**full, "size": _size(full, in_bytes)} for full in value["full"]],
        "rows": [{**row, "size": _size(row, in_bytes)} for row in value["rows"]],
        "others": _others(value.get("without_search")),
        "differences": differences(complete, value["baseline"]),
        "seeds": [
            {
                "model": cell["model"],
                "method": cell["method"],
                "budget": cell["budget"],
                "seed": cell["seed"],
                "auc": cell["record"]["compact_test"]["auc"],
                "size": _per_id(cell["record"]) if in_bytes else cell["record"]["compact_size"]["embedding"],
            }
            for cell in complete
        ],
        "fields": first["fields"] if first else [],
        "cardinalities": first["cardinalities"] if first else [],
        "widths": _widths(complete),
        "settings": value["settings"],
        "versions": first["versions"] if first else {},
        "device": first["device"] if first else "",
    }


def _others(base: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """Returns the models without embeddings on the same rows; none in comparisons of older versions."""
    if base is None:
        return []
    found = {"logistic regression": base["logistic"], "constant": base["constant"]}
    return [{"method": name, "auc": one["auc"], "log_loss": one["log_loss"]} for name, one in found.items()]


def _size(one: Mapping[str, Any], in_bytes: bool) -> float:
    return float(one["bytes"] if in_bytes else one["embedding"])


def _per_id(record: Mapping[str, Any]) -> int:
    sizes = record["compact_bytes"]
    return int(sizes["tables"] + sizes["first_order"])


def _headline(value: Mapping[str, Any]) -> str:
    rows = value["rows"]
    if not rows:
        return "No cell of this comparison is complete yet."
    sentences = []
    for model in dict.fromkeys(row["model"] for row in rows):
        own = [row for row in rows if row["model"] == model]
        best = max(own, key=lambda row: row["auc"])
        front = list(dict.fromkeys(row["method"] for row in own if row["front"]))
        full = next(one for one in value["full"] if one["model"] == model)
        seeds = len(best["seeds"])
        sentences.append(
            f"On {model} the best mean test AUC is {best['auc']:.4f}, by {best['method']} at {best['budget']} "
            f"({seeds} seed{'s' * (seeds > 1)}; the full model has {full['auc']:.4f}). "
            + (f"The Pareto front: {_listed(front)}." if front else "The full model is best.")
        )
    others = _others(value.get("without_search"))
    sentences += [f"A {one['method']} on the same rows has {one['auc']:.4f}." for one in others[:1]]
    return " ".join(sentences)


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def harms(found: Iterable[tuple[str, int, Any]]) -> list[str]:
    """Returns one line per model, seed and field that its pretraining suspected of harm, which all methods share."""
    each = {(model, seed): given for model, seed, given in found}
    return [
        f"{model}, seed {seed}: {sentence(Harm.model_validate(one))}"
        for (model, seed), given in each.items()
        for one in given
    ]


def _notices(cells: list[Mapping[str, Any]]) -> list[str]:
    """Returns one line per method, budget, model and reason, with the seeds concerned."""
    stopped: dict[tuple[str, str], list[str]] = {}
    for cell in cells:
        if cell["state"] != "complete":
            why = "not run yet" if cell["state"] == "open" else f"failed: {cell['error']}"
            what = f"{cell['method']} at {cell['budget']} on {cell['model']}"
            stopped.setdefault((what, why), []).append(str(cell["seed"]))
    return [f"{what}, seed{'s' * (len(seeds) > 1)} {', '.join(seeds)}: {why}" for (what, why), seeds in stopped.items()]


def _widths(complete: list[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Returns the mean kept width of every field per model, budget and method, and the full widths."""
    groups: dict[tuple[str, str, str], list[Mapping[str, Any]]] = {}
    for cell in complete:
        groups.setdefault((cell["model"], cell["budget"], cell["method"]), []).append(cell["record"])
    return [
        {
            "model": model,
            "budget": budget,
            "method": method,
            "after": [round(fmean(column), 2) for column in zip(*(r["widths_after"] for r in records), strict=True)],
            "before": records[0]["widths_before"],
        }
        for (model, budget, method), records in groups.items()
    ]
