"""A model as a folder: weights in safetensors, the rest in JSON and Parquet. No pickle is read or written."""

import math
import platform
from pathlib import Path
from typing import Any, Final

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file

from fieldwise.core.errors import DataError, FieldwiseError, RunError
from fieldwise.core.files import replacing
from fieldwise.core.mask import Mask
from fieldwise.core.names import name_of, resolve
from fieldwise.core.settings import validate
from fieldwise.core.version import __version__
from fieldwise.data.encoder import RULES, Encoder
from fieldwise.exports.info import INFO, FileInfo, ModelInfo, field_infos
from fieldwise.exports.predictor import Predictor
from fieldwise.models import MODELS
from fieldwise.models.model import CTRModel, Model

WEIGHTS: Final = "model.safetensors"
_MODEST: Final = 2**16
"""A layer's size that may be claimed by any file."""


def export(model: CTRModel, folder: Path | str, encoder: Encoder | None = None, mask: Mask | None = None) -> None:
    """Writes a model; `model.json` comes last, so its presence means complete.

    With the dataset's encoder, vocabularies and bins of the fields that the model needs go with it, and `load` gives
    something back that predicts raw rows. The mask adds which columns were kept.
    """
    folder, files = Path(folder), [WEIGHTS]
    if encoder is not None and encoder.schema != model.layout.schema:
        raise DataError("The encoder's fields are not the model's. Give the encoder of the dataset it was trained on.")
    with replacing(folder / WEIGHTS) as work:
        save_file({name: tensor.contiguous() for name, tensor in model.state_dict().items()}, work)
    if encoder is not None:
        needed = Encoder([field for field in encoder.fields if field.name in model.needs])
        needed.save(folder)
        files += needed.files
    info = ModelInfo(
        model={"name": name_of(model.settings, MODELS), **model.settings.values()},
        fields=field_infos(model.layout, model.linear, mask),
        needs=list(model.needs),
        size=model.size(),
        versions={"fieldwise": __version__, "python": platform.python_version(), "torch": torch.__version__},
        files={name: FileInfo.of(folder / name) for name in files},
    )
    info.write(folder)


def load(folder: Path | str, device: str = "cpu") -> Predictor:
    """Reads a model back, ready to predict; refuses damaged or foreign files."""
    folder = Path(folder)
    info = ModelInfo.read(folder)
    try:
        _check_files(folder, info)
        model = _build(info, folder / WEIGHTS)
        model.load_state_dict(load_file(folder / WEIGHTS))
        encoder = _encoder(folder, info) if RULES in info.files else None
    except OSError as error:
        raise RunError(f"'{folder}' holds no whole model: {error}. Export it again.") from error
    except (ValueError, KeyError, TypeError, RuntimeError, SafetensorError, DataError) as error:
        if isinstance(error, FieldwiseError) and not isinstance(error, DataError):
            raise
        why = " ".join(str(error).split())[:300]
        raise RunError(f"The model in '{folder}' is damaged ({why}). Export it again.") from error
    try:
        return Predictor(model.to(device).eval(), encoder)
    except (RuntimeError, AssertionError) as error:  # torch says both, of devices that it does not know or have
        raise RunError(f"Device '{device}' cannot be used ({str(error).splitlines()[0]}). Use cpu.") from error


def _check_files(folder: Path, info: ModelInfo) -> None:
    """Refuses files that are not those which the export wrote."""
    for name, expected in info.files.items():
        size = (folder / name).stat().st_size
        if size != expected.bytes:
            raise RunError(f"'{folder / name}' has {size} bytes, {INFO} says {expected.bytes}. Export the model again.")
        if FileInfo.of(folder / name) != expected:
            raise RunError(f"'{folder / name}' is not the file that was exported. Export the model again.")


def _build(info: ModelInfo, weights: Path) -> CTRModel:
    values = dict(info.model)
    cls = resolve("model", MODELS, str(values.pop("name")))
    if not issubclass(cls, Model):
        raise RunError(f"'{cls.__name__}' is no base model. Name a subclass of fieldwise.models.model.Model.")
    settings, problems = validate(cls, values, "model")
    if settings is None:
        raise RunError(f"The model's settings are not understood: {' '.join(problems)}")
    layout, linear = info.layout, info.linear
    # what is claimed is compared with the file before memory is taken for it
    with safe_open(weights, framework="pt") as file:
        stored = sum(math.prod(file.get_slice(name).get_shape()) for name in file.keys())  # noqa: SIM118
    tables, layers = layout.params + linear.params, max(_numbers(settings.values()))
    if tables > stored or layers > max(stored, _MODEST):
        raise RunError(f"Sizes of {max(tables, layers)} are claimed, {stored} numbers are stored. Export it again.")
    with torch.random.fork_rng(devices=[]):
        return settings.build(layout, linear if settings.has_first_order() else None)


def _encoder(folder: Path, info: ModelInfo) -> Encoder:
    """The vocabularies and bins of the needed fields; says no where they are of other fields or sizes."""
    encoder = Encoder.open(folder)
    if encoder.schema.fields != tuple(field for field in info.layout.schema.fields if field.name in info.needs):
        raise RunError(f"'{folder}': the vocabularies are not those of the model's fields. Export the model again.")
    return encoder


def _numbers(values: Any) -> list[int]:
    """Every whole number of plain values."""
    if isinstance(values, dict | list):
        inner = values.values() if isinstance(values, dict) else values
        return [number for value in inner for number in _numbers(value)]
    return [values] if isinstance(values, int) else []
