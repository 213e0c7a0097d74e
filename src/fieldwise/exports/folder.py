"""A model as a folder: weights in safetensors, everything else in readable JSON. No pickle is read or written."""

import json
import math
from pathlib import Path
from typing import Any, Final

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file

from fieldwise.core.errors import FieldwiseError, RunError
from fieldwise.core.files import replacing, write_json
from fieldwise.core.names import name_of, resolve
from fieldwise.core.schema import Layout, Schema
from fieldwise.core.settings import validate
from fieldwise.models import MODELS
from fieldwise.models.model import CTRModel, Model

WEIGHTS: Final = "model.safetensors"
INFO: Final = "model.json"
FORMAT: Final = "fieldwise-model/1"


def export(model: CTRModel, folder: Path | str) -> None:
    """Writes a model; `model.json` comes last, so its presence means complete."""
    folder = Path(folder)
    with replacing(folder / WEIGHTS) as work:
        save_file({name: tensor.contiguous() for name, tensor in model.state_dict().items()}, work)
    info = {
        "format": FORMAT,
        "model": {"name": name_of(model.settings, MODELS), **model.settings.values()},
        "fields": [
            {**field, "width": width, "first_order": first}
            for field, width, first in zip(
                model.layout.schema.to_json(), model.layout.widths, _first_order(model), strict=True
            )
        ],
        "needs": list(model.needs),
        "size": model.size().to_json(),
    }
    write_json(folder / INFO, info)


def load(folder: Path | str, device: str = "cpu") -> CTRModel:
    """Reads a model back, ready to predict; refuses damaged or foreign files."""
    folder = Path(folder)
    try:
        info = json.loads((folder / INFO).read_text(encoding="utf-8"))
        if info["format"] != FORMAT:
            raise RunError(f"'{folder}' has format {info['format']!r}. Allowed: {FORMAT!r}.")
        model = _build(info, folder / WEIGHTS)
        model.load_state_dict(load_file(folder / WEIGHTS))
    except OSError as error:
        raise RunError(f"'{folder}' holds no whole model: {error}. Export it again.") from error
    except (ValueError, KeyError, TypeError, RuntimeError, SafetensorError) as error:
        if isinstance(error, FieldwiseError):
            raise
        raise RunError(f"The model in '{folder}' is damaged ({error!r}). Export it again.") from error
    return model.to(device).eval()


def _build(info: dict[str, Any], weights: Path) -> CTRModel:
    values = dict(info["model"])
    cls = resolve("model", MODELS, str(values.pop("name")))
    if not issubclass(cls, Model):
        raise RunError(f"'{cls.__name__}' is no base model. Name a subclass of fieldwise.models.model.Model.")
    settings, problems = validate(cls, values, "model")
    if settings is None:
        raise RunError(f"The model's settings are not understood: {' '.join(problems)}")
    fields = info["fields"]
    layout = Layout(Schema.from_json(fields), tuple(int(field["width"]) for field in fields))
    # the claimed tables are compared with the file before memory is taken for them
    with safe_open(weights, framework="pt") as file:
        stored = sum(math.prod(file.get_slice(name).get_shape()) for name in file.keys())  # noqa: SIM118
    if layout.params > stored:
        raise RunError(f"Tables of {layout.params} numbers are claimed, {stored} are stored. Export it again.")
    linear = Layout(layout.schema, tuple(int(field["first_order"]) for field in fields))
    with torch.random.fork_rng(devices=[]):
        return settings.build(layout, linear if settings.has_first_order() else None)


def _first_order(model: CTRModel) -> tuple[int, ...]:
    return model.linear.widths if model.linear else (0,) * len(model.layout.widths)
