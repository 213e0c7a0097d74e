"""Cosine similarities between the columns of pretrained tables (the paper's Figure 4)."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from fieldwise.core.errors import FieldwiseError, RunError
from fieldwise.core.hints import either
from fieldwise.core.plain_files import read_json
from fieldwise.core.schema import Layout, Schema
from fieldwise.core.settings import Values
from fieldwise.reports.run.view import RunView, StageView


def cosines(folder: Path) -> dict[str, NDArray[np.float64]]:
    """Returns the cosines between the columns of each field, (width, width), for all fields with columns."""
    try:
        result = {}
        with safe_open(folder / "model.safetensors", framework="np") as file:
            for name, key, rows in _tables(folder):
                result[name] = _cosine(np.asarray(file.get_slice(key)[rows], dtype=np.float64))
    except (OSError, ValueError, KeyError, TypeError, SafetensorError, FieldwiseError) as error:
        raise RunError(f"the tables in {'/'.join(folder.parts[-2:])} cannot be read ({error})") from error
    return result


def fields_of(folder: Path) -> dict[str, int]:
    """Returns the cardinality of each field of a model, by name."""
    try:
        schema = _layout(folder).schema
    except (OSError, ValueError, KeyError, TypeError, FieldwiseError) as error:
        raise RunError(f"the model in {'/'.join(folder.parts[-2:])} cannot be read ({error})") from error
    return dict(zip(schema.names, schema.cardinalities, strict=True))


def panel(view: StageView, settings: Values, names: list[str]) -> dict[str, Any]:
    """Returns the page's data for one pretraining: the upper triangle of every field's cosines, in hundredths."""
    found = cosines(view.folder)
    fields = [
        None
        if (values := found.get(name)) is None
        else {
            "width": len(values),
            "upper": np.rint(values[np.triu_indices(len(values), 1)] * 100).astype(int).tolist(),
        }
        for name in names
    ]
    return {"label": label(settings), "seed": view.seed, "fields": fields}


def label(settings: Values) -> str:
    """Describes the orthogonality term of a pretraining: without, or its form and strength."""
    regularity = settings.get("pretrain", {}).get("regularity", {})
    strength = float(regularity.get("strength", 0.0))
    if not strength:
        return "without orthogonality"
    return f"with orthogonality ({regularity.get('form', 'raw')}, {strength:g})"


def compared(view: RunView, against: RunView | None, names: list[str]) -> list[dict[str, Any]]:
    """Returns a panel for the run's first pretraining, and one for another run with the same fields."""
    own = view.stage("pretrain")
    if not own:
        return []
    panels = [panel(own[0], view.settings, names)]
    if against is not None:
        others = against.stage("pretrain")
        same = [other for other in others if other.seed == own[0].seed] or others
        if not same:
            raise RunError(
                f"{either('--against', 'against:')} '{against.out}' holds no complete pretraining. "
                "Name a run that has one."
            )
        panels.append(panel(same[0], against.settings, names))
        if not any(panels[1]["fields"]):
            raise RunError(
                f"{either('--against', 'against:')} '{against.out}' has none of this run's fields. "
                "Name a run over the same data."
            )
    return panels


def _cosine(table: NDArray[np.float64]) -> NDArray[np.float64]:
    length = np.linalg.norm(table, axis=0)
    unit = table / np.where(length > 0, length, 1.0)
    return unit.T @ unit


def _tables(folder: Path) -> Iterator[tuple[str, str, slice]]:
    """Yields each field that has columns, the name of the weight that holds its table, and its rows in it."""
    layout, module = _layout(folder), read_json(folder / "model.json").get("module")
    if module is None:
        for name, width, rows in zip(layout.schema.names, layout.widths, layout.stacked_rows, strict=True):
            if width:
                yield name, f"embedding.tables.{width}", rows
        return
    for table in module["tables"]:
        if len(table["fields"]) == 1:  # several fields in one module: a FieldEmbedding, which is not shown
            yield layout.schema.names[table["fields"][0]], f"module.{table['path']}.weight", slice(None)


def _layout(folder: Path) -> Layout:
    fields = read_json(folder / "model.json")["fields"]
    return Layout(Schema.from_json(fields), tuple(int(field["width"]) for field in fields))
