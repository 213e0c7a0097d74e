"""Prepares the data of a run's page."""

from typing import Any

from fieldwise.core.errors import RunError
from fieldwise.core.records import Bytes, RunRecord, Size
from fieldwise.reports.run import cosines, dynamics, headline, stored, verdict
from fieldwise.reports.run.view import RunView, StageView


def run_data(view: RunView, against: RunView | None = None) -> dict[str, Any]:
    """Returns the data of the page; whatever cannot be read becomes a notice."""
    notices = list(view.missing)
    fields = _fields(view, notices)
    names = [field["name"] for field in fields]
    first = view.records[0] if view.records else None
    chosen = headline.chosen(view.records) if view.records else []
    return {
        "kind": "run",
        "size": stored.BYTES,
        "title": _title(view, first),
        "source": view.source,
        "headline": headline.sentence(chosen, view.baselines) if chosen else "No search of this run is complete yet.",
        "chosen": chosen[0].budget if chosen else None,
        "close": headline.CLOSE,
        "warnings": verdict.warnings(view.records, view.baselines) if view.records else [],
        "harms": verdict.harms(view.records),
        "verdict": _verdict(view),
        "columns": _columns(view),
        "notices": notices,
        "fields": fields,
        "results": [_result(record) for record in view.records],
        "stored": {
            "heads": list(stored.HEADS),
            "rows": [[str(cell) for cell in row] for row in stored.stored_rows(view.records)],
            "note": stored.NOTE,
        },
        "stages": [_stage(stage) for stage in view.stages],
        "searches": _searches(view, notices),
        "cosines": _cosines(view, against, names, notices),
        "settings": view.settings,
        "versions": first.versions if first else {},
        "device": first.device if first else "",
        "data": first.data if first else "",
        "commands": view.commands,
    }


def _title(view: RunView, first: RunRecord | None) -> str:
    if first:
        return f"{first.search} on {first.source}, {first.model}"
    search, model = (str(view.settings.get(table, {}).get("name", table)) for table in ("search", "model"))
    return f"{search} on {view.source}, {model}"


def _verdict(view: RunView) -> dict[str, Any]:
    """Returns every model beside the baselines, the differences per budget, and each field by itself."""
    if not view.records:
        return {"models": [], "changes": [], "fields": []}
    models = [model.to_json() for model in verdict.judged(view.records, view.baselines)]
    found = [verdict.change(group) for group in verdict.by_budget(view.records).values()]
    changes = [{"budget": c.budget, "auc": c.auc.to_json(), "log_loss": c.log_loss.to_json()} for c in found]
    single = [field.to_json() for field in view.baselines.fields] if view.baselines else []
    return {"models": models, "changes": changes, "fields": single}


def _columns(view: RunView) -> dict[str, Any] | None:
    """Returns the table of raw columns; None if the source names its own fields."""
    if view.kinds is None:
        return None
    found = view.kinds.view()
    return {"title": found.title, "lines": list(found.lines), "heads": found.heads, "rows": found.rows}


def _fields(view: RunView, notices: list[str]) -> list[dict[str, Any]]:
    """Returns names and cardinalities from a record, or from a pretrained model if no record exists."""
    if view.records:
        first = view.records[0]
        rows = zip(first.fields, first.cardinalities, strict=True)
        return [{"name": name, "cardinality": cardinality} for name, cardinality in rows]
    for stage in view.stage("pretrain"):
        try:
            return [
                {"name": name, "cardinality": cardinality}
                for name, cardinality in cosines.fields_of(stage.folder).items()
            ]
        except RunError as error:
            notices.append(str(error))
    return []


def _result(record: RunRecord) -> dict[str, Any]:
    full, small = record.stored_sizes
    return {
        "budget": record.budget,
        "seed": record.seed,
        "before": record.widths_before,
        "after": record.widths_after,
        "full": {**_size(record.full_size, full), **record.full_test.to_json(), "valid": record.full_valid.auc},
        "compact": {
            **_size(record.compact_size, small),
            **record.compact_test.to_json(),
            "valid": record.compact_valid.auc,
        },
        "store": record.store,
        "summary": record.summary.to_json(),
    }


def _size(size: Size, stored: Bytes) -> dict[str, Any]:
    parts = {"tables": stored.tables, "first_order": stored.first_order, "dense": stored.dense, "scales": stored.scales}
    return {
        **size.to_json(),
        "all": verdict.total(size),
        "stored": {**parts, "per_id": stored.per_id, "all": stored.weights},
    }


def _stage(view: StageView) -> dict[str, Any]:
    record = view.record
    return {
        "stage": view.stage,
        "seed": view.seed,
        "budget": view.budget,
        "seconds": record.seconds,
        "memory": record.peak_memory,
        "history": [epoch.to_json() for epoch in record.history],
    }


def _searches(view: RunView, notices: list[str]) -> list[dict[str, Any]]:
    found = []
    for stage in view.stage("search"):
        try:
            traces = dynamics.parts(stage, view.settings.get("search", {}))
        except RunError as error:
            notices.append(str(error))
            continue
        found += [(stage, place, trace) for place, trace in enumerate(traces)]
    room = dynamics.NUMBERS // max(1, len(found))
    return [
        {"budget": stage.budget, "seed": stage.seed, "part": place, **dynamics.drawn(trace, room)}
        for stage, place, trace in found
    ]


def _cosines(view: RunView, against: RunView | None, names: list[str], notices: list[str]) -> list[dict[str, Any]]:
    try:
        return cosines.compared(view, against, names)
    except RunError as error:
        if against is not None:
            raise
        notices.append(str(error))
        return []
