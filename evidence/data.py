"""The data behind a page: one JSON file per run folder, small enough to commit, with every number on the page."""

import json
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, Literal

from fieldwise.core.comparison import Comparison
from fieldwise.core.errors import RunError
from fieldwise.core.files import write_text
from fieldwise.core.records import Metrics, Record, RunRecord, Size
from fieldwise.reports.run import cosines, dynamics
from fieldwise.reports.run.view import RunView, StageView, open_run
from fieldwise.reports.write import COMPARISON

FORMAT: Literal["fieldwise-evidence/1"] = "fieldwise-evidence/1"
MOMENTS: Final = 60
"""Moments stored per search."""


class About(Record):
    """The origin of the numbers."""

    name: str
    """Name of the run folder."""
    machine: str
    device: str
    jobs: int
    """Cells run in parallel, which affects the seconds."""
    versions: dict[str, str]
    commit: str
    """Commit of the code that ran."""
    settings: dict[str, Any]
    """The resolved settings file."""
    fields: dict[str, int]
    """Cardinality of each field."""


class Cell(Record):
    """The result of one model, budget, method and seed; without budget and method, of the full model."""

    model: str
    method: str | None = None
    budget: str | None = None
    seed: int
    auc: float
    """AUC on the test split; so is the log loss."""
    log_loss: float
    valid_auc: float
    valid_log_loss: float
    widths: list[int]
    embedding: int
    first_order: int
    dense: int
    seconds: dict[str, float]
    own: int | None = None
    """Live columns at the end of the search, before selection to the exact budget."""


class Search(Record):
    """The dynamics of one search."""

    budget: str
    seed: int
    steps: int
    limit: int
    live: list[list[int]]
    """Steps, and the live columns after each: the minimum and maximum of every span."""
    reactivated: int
    every: float
    """The scale of `scores`: the value of one unit."""
    owners: list[int]
    kept: list[int]
    moments: list[int]
    scores: list[list[int]]
    """The scores of each column at every moment, in units of `every`."""
    auc: list[float]
    """Validation AUC before the first epoch and after each."""
    selected_auc: float
    """Validation AUC of the selected model, before retraining."""


class Pretrained(Record):
    """One pretraining, and the cosines between the columns of its tables."""

    seed: int
    valid_auc: float
    epochs: int
    seconds: float
    cosines: dict[str, list[float]]
    """The cosines above the diagonal, row by row, of every field with at least two columns."""


class Evidence(Record):
    """The data that pages need from one run folder."""

    format: Literal["fieldwise-evidence/1"] = FORMAT
    about: About
    full: tuple[Cell, ...] = ()
    cells: tuple[Cell, ...] = ()
    searches: tuple[Search, ...] = ()
    pretrained: tuple[Pretrained, ...] = ()


def gather(out: Path, machine: str, commit: str) -> Evidence:
    """Collects the evidence of a run folder or a comparison folder."""
    if (out / COMPARISON).exists():
        return _comparison(out / COMPARISON, machine, commit)
    view = open_run(out)
    first = view.records[0] if view.records else None
    about = About(
        name=out.name,
        machine=machine,
        device=first.device if first else str(view.settings["run"]["device"]),
        jobs=1,
        versions=first.versions if first else {name: version(name) for name in ("fieldwise", "torch", "numpy")},
        commit=commit,
        settings=_placeless(view.settings),
        fields=cosines.fields_of(view.stage("pretrain")[0].folder),
    )
    return Evidence(
        about=about,
        full=tuple(_full(record.model, record) for record in view.records[:1]),
        cells=tuple(_cell(record.model, record.search, record) for record in view.records),
        searches=tuple(found for stage in view.stage("search") for found in _searches(view, stage)),
        pretrained=tuple(_pretrained(stage) for stage in view.stage("pretrain")),
    )


def read_evidence(path: Path) -> Evidence:
    """Reads evidence from a file."""
    return Evidence.model_validate_json(path.read_text(encoding="utf-8"))


def write(path: Path, evidence: Evidence) -> None:
    """Writes evidence to a file, one line per cell."""
    values = evidence.model_dump(mode="json", exclude_defaults=True)
    lines = [f'"format": {json.dumps(FORMAT)}']
    for key, value in values.items():
        rows = [json.dumps(row) for row in value] if isinstance(value, list | tuple) else None
        lines.append(f'"{key}": ' + (json.dumps(value) if rows is None else "[\n  " + ",\n  ".join(rows) + "\n ]"))
    write_text(path, "{\n " + ",\n ".join(lines) + "\n}\n")


def _comparison(path: Path, machine: str, commit: str) -> Evidence:
    found = Comparison.model_validate_json(path.read_text(encoding="utf-8"))
    complete = [(cell, cell.record) for cell in found.cells if cell.record]
    if len(complete) < len(found.cells):
        left = len(found.cells) - len(complete)
        raise RunError(f"'{path}': {left} of {len(found.cells)} cells are not complete. Complete the comparison first.")
    first = complete[0][1]
    about = About(
        name=path.parent.name,
        machine=machine,
        device=first.device,
        jobs=found.jobs,
        versions=first.versions,
        commit=commit,
        settings=_placeless(found.settings),
        fields=dict(zip(first.fields, first.cardinalities, strict=True)),
    )
    full = {(cell.model, cell.seed): _full(cell.model, record) for cell, record in complete}
    return Evidence(
        about=about,
        full=tuple(full[key] for key in sorted(full)),
        cells=tuple(_cell(cell.model, cell.method, record) for cell, record in complete),
    )


def _placeless(settings: dict[str, Any]) -> dict[str, Any]:
    """Returns settings without paths of this machine."""
    run = {key: value for key, value in settings["run"].items() if key != "dataset"}
    data = {key: value for key, value in settings.get("data", {}).items() if key != "raw"}
    return {**settings, "run": run, "data": data}


def _figures(test: Metrics, valid: Metrics, size: Size) -> dict[str, Any]:
    """Returns the fields of a cell that describe a model, full or compact."""
    return {
        "auc": round(test.auc, 6),
        "log_loss": round(test.log_loss, 6),
        "valid_auc": round(valid.auc, 6),
        "valid_log_loss": round(valid.log_loss, 6),
        "embedding": size.embedding,
        "first_order": size.first_order,
        "dense": size.dense,
    }


def _cell(model: str, method: str, record: RunRecord) -> Cell:
    return Cell(
        **_figures(record.compact_test, record.compact_valid, record.compact_size),
        model=model,
        method=method,
        budget=record.budget,
        seed=record.seed,
        widths=record.widths_after,
        seconds={stage: round(record.seconds[stage], 2) for stage in ("search", "retrain")},
        own=record.summary.raw_live,
    )


def _full(model: str, record: RunRecord) -> Cell:
    return Cell(
        **_figures(record.full_test, record.full_valid, record.full_size),
        model=model,
        seed=record.seed,
        widths=record.widths_before,
        seconds={"pretrain": round(record.seconds["pretrain"], 2)},
    )


def _searches(view: RunView, stage: StageView) -> list[Search]:
    found = []
    for part in dynamics.parts(stage, view.settings.get("search", {})):
        drawn = dynamics.drawn(part, MOMENTS * (part.layout.columns + len(part.layout.widths)))
        assert stage.record.summary is not None
        found.append(
            Search(
                budget=str(stage.budget),
                seed=stage.seed,
                steps=drawn["steps"],
                limit=drawn["limit"],
                live=[drawn["at"], drawn["live"]],
                reactivated=drawn["reactivated"],
                every=drawn["scale"],
                owners=drawn["owners"],
                kept=drawn["kept"],
                moments=drawn["moments"],
                scores=drawn["scores"],
                auc=[round(epoch.auc, 6) for epoch in stage.record.history],
                selected_auc=round(stage.record.summary.selected_auc, 6),
            )
        )
    return found


def _pretrained(stage: StageView) -> Pretrained:
    history = stage.record.history
    upper = {
        name: [round(float(values[i, j]), 4) for i in range(len(values)) for j in range(i + 1, len(values))]
        for name, values in cosines.cosines(stage.folder).items()
    }
    return Pretrained(
        seed=stage.seed,
        valid_auc=round(max(epoch.auc for epoch in history), 6),
        epochs=len(history) - 1,
        seconds=round(stage.record.seconds, 2),
        cosines={name: values for name, values in upper.items() if values},
    )
