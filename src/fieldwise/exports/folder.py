"""A model as a folder: weights in safetensors, the rest in JSON and Parquet. No pickle is read or written.

A folder may be untrusted: loading runs no code that it names, and allocates no more memory than its files need.
"""

import platform
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from pyarrow import ArrowException
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from fieldwise.core.errors import DataError, FieldwiseError, RunError, SettingsError
from fieldwise.core.files import replacing
from fieldwise.core.hints import either
from fieldwise.core.mask import Mask
from fieldwise.core.plain_files import check_regular
from fieldwise.core.registry import name_of, name_of_class, resolve
from fieldwise.core.schema import Schema
from fieldwise.core.settings import check_argument, validate
from fieldwise.core.store import FLOAT32, Store
from fieldwise.core.version import __version__
from fieldwise.data.encoder import RULES, Encoder, vocabulary_file
from fieldwise.exports.info import INFO, WEIGHTS, FileInfo, ModelInfo, field_infos
from fieldwise.exports.modules import module_info, rebuilt, weights_of
from fieldwise.exports.predictor import Predictor, needed_by
from fieldwise.exports.stored import build as build_stored
from fieldwise.exports.stored import check_finite
from fieldwise.models import MODELS
from fieldwise.models.factory import Build, Factory, model_class
from fieldwise.models.factory_model import FactoryModel
from fieldwise.models.model import CTRModel, HeadModel, Model, OwnModel
from fieldwise.models.stored import StoredModel, store_of, stored, stored_bytes
from fieldwise.tables.state import separate


def export(
    model: CTRModel | StoredModel | nn.Module,
    folder: Path | str,
    encoder: Encoder | None = None,
    mask: Mask | None = None,
    store: Store | str | None = None,
    build: Build | None = None,
) -> None:
    """Writes a model to a folder; `model.json` is written last, so its presence means that the folder is complete.

    With the dataset's encoder, the folder also holds the vocabularies and bins of the fields that the model needs, and
    `load` returns a predictor of raw rows. With the mask, it also records which columns were kept. `store` is the type
    of tables and first-order weights, such as "int8" (`Store`); by default they are written as they are. A module of
    your own loop, such as `pruner.compact()`, needs the encoder and the function `build(schema)` of its full form.
    """
    model = _adopted(model, encoder, build)
    if isinstance(model, FactoryModel):
        mask = model.mask
    if encoder is not None:
        encoder = needed_by(model, encoder)
    unknown: tuple[None, ...] = (None,) * len(model.layout.widths)
    write_folder(in_store(model, store), Path(folder), encoder, mask.kept if mask else unknown)


def in_store(model: CTRModel | StoredModel, store: Store | str | None) -> CTRModel | StoredModel:
    """The model with its tables in a store; refuses to convert tables that are rounded already."""
    wanted = store_of(model) if store is None else Store.parse(store)
    if isinstance(model, StoredModel) and wanted != model.store:
        raise SettingsError(
            f"store = '{wanted}': the tables are stored as {model.store} already. Export the "
            f"trained float32 model with store='{wanted}', or retrain with [retrain] store = '{wanted}'."
        )
    return model if isinstance(model, StoredModel) or wanted == FLOAT32 else stored(model, wanted)


def write_folder(
    model: CTRModel | StoredModel, folder: Path, encoder: Encoder | None, kept: Sequence[Sequence[int] | None]
) -> None:
    """Writes a model as it is, with the encoder of the fields that it needs.

    `kept` are the columns of the full model that each field keeps, if known.
    """
    files = [WEIGHTS]
    weights = separate(weights_of(model) if isinstance(model, FactoryModel) else model.state_dict())
    check_finite(weights)
    with replacing(folder / WEIGHTS) as work:
        save_file(weights, work)
    if encoder is not None:
        encoder.save(folder, counts=False)
        files += encoder.files
    info = ModelInfo(
        model={"name": name_of(model.settings, MODELS), **model.settings.values()},
        fields=field_infos(model.layout, model.linear, kept),
        store=store_of(model),
        needs=list(model.needs),
        size=model.size(),
        bytes=stored_bytes(model),
        versions={"fieldwise": __version__, "python": platform.python_version(), "torch": torch.__version__},
        files={name: FileInfo.of(folder / name) for name in files},
        module=module_info(model) if isinstance(model, FactoryModel) else None,
    )
    info.write(folder)


def _adopted(model: nn.Module, encoder: Encoder | None, build: Build | None) -> CTRModel | StoredModel:
    if isinstance(model, CTRModel | StoredModel):
        return model
    check_argument(model, nn.Module, "model", "fw.retrain(...).model")
    if encoder is None or build is None:
        raise SettingsError(
            f"A folder for a {type(model).__name__} needs the fields and the factory of its module. Pass "
            "encoder=data.encoder and build=..., the function build(schema) that builds its full form."
        )
    settings = model_class(build)()
    assert isinstance(settings, Factory)
    return settings.adopted(model, encoder.schema)


def load(folder: Path | str, device: str = "cpu", model: type[Model] | Build | None = None) -> Predictor:
    """Loads a model, ready to predict; refuses damaged files and files that the export did not write.

    A model that is not part of the library is loaded only if its factory, the function `build(schema)`, is passed: a
    folder cannot make code run.
    """
    folder = Path(folder)
    _check_device(device)
    info = ModelInfo.read(folder)
    try:
        settings = _settings(info, _class(folder, info, model))
        _check_files(folder, info)
        tensors = load_file(folder / WEIGHTS)
        check_finite(tensors)
        built = _built(settings, info, tensors)
        del tensors
        if list(built.needs) != info.needs:
            raise RunError(f"'{folder}': the model needs other fields than {INFO} lists. Export the model again.")
        encoder = _encoder(folder, info) if RULES in info.files else None
    except OSError as error:
        raise RunError(f"'{folder}' holds no complete model: {error}. Export it again.") from error
    except (
        ValueError, KeyError, TypeError, IndexError, OverflowError, RuntimeError, MemoryError, SafetensorError,
        ArrowException, DataError,
    ) as error:  # fmt: skip
        if isinstance(error, FieldwiseError) and not isinstance(error, DataError):
            raise
        why = " ".join(str(error).split())[:300]
        raise RunError(f"The model in '{folder}' is damaged ({why}). Export it again.") from error
    built = built.to(device).eval()
    if isinstance(built, FactoryModel):
        built.check_device()
    return Predictor(built, encoder)


def load_trained(folder: Path, model: type[Model]) -> CTRModel:
    """Loads the float32 model of a stage's folder, ready to train; `model` is the class of its settings."""
    found = load(folder, model=model).model
    if isinstance(found, StoredModel):
        raise RunError(f"'{folder}' holds tables in {found.store}, which cannot be trained. Run its stage again.")
    if isinstance(found, HeadModel) and found.layout != found.layout.sharing() and found.layout.shared is None:
        raise RunError(f"'{folder}' has a vector for every tier, as earlier versions built them. Start a new run.")
    return found


def _check_device(device: str) -> None:
    try:
        torch.ones(1).to(device).cpu()  # copying back fails on the meta device, which cannot compute
    except (RuntimeError, AssertionError, ImportError, ValueError) as error:  # torch raises any of these
        line = (str(error).splitlines() or [type(error).__name__])[0]
        raise RunError(f"Device '{device}' cannot be used ({line}). Use cpu.") from error


def _built(settings: Model, info: ModelInfo, tensors: Mapping[str, Tensor]) -> CTRModel | StoredModel:
    if isinstance(settings, Factory) and info.module is not None and info.store == FLOAT32:
        return rebuilt(settings, info, info.module, tensors)
    if isinstance(settings, OwnModel) and info.module is None:
        return build_stored(settings, info.layout, info.linear, tensors, info.store)
    raise RunError(f"{INFO} describes another kind of model than {type(settings).__name__}. Export the model again.")


def _class(folder: Path, info: ModelInfo, given: type[Model] | Build | None) -> type[Model]:
    """Returns the model's class: the library's by name, any other only if it was passed."""
    named = info.model.get("name")
    if given is None and named not in MODELS:
        raise RunError(
            f"'{folder}' holds a model of {str(named)!r:.80}, which is not part of the library and is not imported on "
            f"a file's word. Add {either(f'--model {named!s:.80}', 'model=<its function or class>')}, if you trust it."
        )
    cls = model_class(resolve("model", MODELS, str(named)) if given is None else given)
    is_named = name_of_class(cls, MODELS)
    if named not in (is_named, f"__main__:{cls.__name__}"):  # a class of a script has another path when imported
        raise RunError(
            f"'{folder}' holds a model of class {str(named)!r:.80}, but got class '{is_named}'. Pass the former."
        )
    return cls


def _settings(info: ModelInfo, cls: type[Model]) -> Model:
    values = {name: value for name, value in info.model.items() if name != "name"}
    settings, problems = validate(cls, values, "model", trusted=())
    if settings is None:
        raise RunError(f"The model's settings are not valid: {' '.join(problems)}")
    return settings


def _check_files(folder: Path, info: ModelInfo) -> None:
    """Refuses files that differ from what the export wrote, and files that are needed but not listed."""
    vocabularies = [vocabulary_file(index) for index in range(len(info.needs))] if RULES in info.files else []
    for name in (WEIGHTS, *vocabularies):
        if name not in info.files:
            raise RunError(f"{INFO} does not list '{folder / name}', so it cannot be checked. Export the model again.")
    for name, expected in info.files.items():
        size = check_regular(folder / name)
        if size != expected.bytes:
            raise RunError(
                f"'{folder / name}' has {size} bytes, {INFO} lists {expected.bytes}. Export the model again."
            )
        if FileInfo.of(folder / name) != expected:
            raise RunError(f"'{folder / name}' has changed since the export. Export the model again.")


def _encoder(folder: Path, info: ModelInfo) -> Encoder:
    """Reads the vocabularies and bins of the needed fields; refuses those of other fields or sizes."""
    needs = set(info.needs)
    needed = tuple(field for field in info.inputs.fields if field.name in needs)
    return Encoder.open(folder, Schema(needed))
