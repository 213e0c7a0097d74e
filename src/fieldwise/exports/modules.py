"""Stores a factory's module as weights and JSON, and builds it again with the factory.

The module is first built on torch's meta device, where the full tables take no memory. A factory that computes values
while it builds cannot do that; its module is then built with memory, if its ids are not many more than what is stored.
"""

from collections.abc import Mapping
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from fieldwise.core.errors import MaskError, RunError, SettingsError
from fieldwise.core.schema import Layout
from fieldwise.exports.info import INFO, InputInfo, ModelInfo, ModuleInfo, NarrowInfo, TableInfo
from fieldwise.exports.meta import on_meta
from fieldwise.exports.stored import PLACES, SPARE, at_most
from fieldwise.models.factory import IDS, Factory
from fieldwise.models.factory_model import FactoryModel
from fieldwise.pruning.example import evaluating
from fieldwise.pruning.inside import Inside, draws
from fieldwise.pruning.rebuilding import MetaError, describe, rebuild, unstored
from fieldwise.pruning.sites import Table
from fieldwise.tables.embedding import FieldEmbedding
from fieldwise.tables.state import Tensors, named, under

FULL: Final = 16
"""How many times the stored numbers, and IDS, the full module may have, if it cannot be built without memory."""


def weights_of(model: FactoryModel) -> Tensors:
    """Returns all tensors to store: weights, buffers, and buffers that a state_dict leaves out."""
    return named("module", model.module.state_dict()) | named("buffer", unstored(model.module))


def module_info(model: FactoryModel) -> ModuleInfo:
    """Returns what the folder stores about the module."""
    inside = model.inside
    return ModuleInfo(
        inputs=[InputInfo(name=f.name, cardinality=f.cardinality, length=f.length) for f in inside.schema.fields],
        by_name=inside.by_name,
        probabilities=inside.probabilities,
        first_order=inside.first_order,
        tables=[TableInfo(path=path, fields=list(fields)) for path, fields in inside.places],
        narrow=NarrowInfo.model_validate(describe(model.module)),
    )


def rebuilt(settings: Factory, info: ModelInfo, about: ModuleInfo, stored: Mapping[str, Tensor]) -> FactoryModel:
    """Returns the model with the stored weights; refuses claims of other sizes before allocating memory."""
    schema = info.inputs
    if schema.places > PLACES:
        raise RunError(f"A row has {schema.places} ids. Allowed: at most {PLACES}. Export it again.")
    weights = {**under("module", dict(stored)), **under("buffer", dict(stored))}
    try:
        with torch.random.fork_rng(devices=[]):
            module, full = _module(settings, info, about, weights)
    except MaskError as error:
        raise RunError(f"{error} Export it again.") from error
    inside = Inside(
        schema,
        full,
        tuple((table.path, tuple(table.fields)) for table in about.tables),
        about.by_name,
        about.probabilities,
        about.first_order,
    )
    unknown = set(info.needs) - set(schema.names)
    if unknown:
        raise RunError(f"The model needs {', '.join(sorted(unknown))}, which are not its inputs. Export it again.")
    found = FactoryModel(settings, inside, module, tuple(info.needs))
    if found.layout != info.layout:
        raise RunError(
            f"The stored tables have widths {found.layout.widths}, not {info.layout.widths}. Export it again."
        )
    _check_call(found)
    return found


def _check_call(model: FactoryModel) -> None:
    """Refuses a module that cannot be called as the file says."""
    ids = next(draws(model.schema, rows=2))
    try:
        with torch.no_grad(), evaluating(model):
            shape = tuple(model(ids).shape)
    except Exception as error:  # a user's forward may raise anything
        line = (str(error).strip().splitlines() or [""])[0]
        raise RunError(
            f"The module cannot be called as {INFO} says: {type(error).__name__} ({line[:200]}). Export it again."
        ) from error
    if shape != (2,):
        raise RunError(f"The module returns {shape} for 2 rows, not logits. Export it again.")


def _module(settings: Factory, info: ModelInfo, about: ModuleInfo, weights: Tensors) -> tuple[nn.Module, Layout]:
    """Returns the rebuilt module, and the layout of the full one."""
    schema = info.inputs
    parts = 8 * (len(weights) + len(schema)) + SPARE
    try:
        with on_meta(), at_most(parts):
            module = settings.module(schema)
        full = _full(module, about, info)
        return rebuild(module, about.narrow.to_json(), weights), full
    except (SettingsError, MetaError) as error:
        why = str(error)
    ids, numbers = sum(schema.cardinalities), sum(tensor.numel() for tensor in weights.values())
    if ids > numbers + IDS:
        raise RunError(
            f"The module must be built with memory ({why}), and its fields claim {ids:,} ids, but {numbers:,} numbers "
            "are stored. Let the factory build under torch.device('meta')."
        )
    with at_most(parts), _Limit(FULL * (numbers + IDS)):
        module = settings.module(schema)
    full = _full(module, about, info)
    return rebuild(module, about.narrow.to_json(), weights), full


class _Limit(TorchDispatchMode):
    """Raises before a module that is being built creates tensors of more than `numbers` numbers in total."""

    def __init__(self, numbers: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._numbers, self._left = numbers, numbers

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = kwargs or {}
        if any(argument.name == "device" for argument in func._schema.arguments):  # it creates a tensor
            self._left -= func(*args, **{**given, "device": torch.device("meta")}).numel()
        if self._left < 0:
            raise RunError(
                f"The module has more than {self._numbers:,} numbers, but fewer are stored. Export it again."
            )
        return func(*args, **given)


def _full(module: nn.Module, about: ModuleInfo, info: ModelInfo) -> Layout:
    """Returns the layout of the full module's tables; refuses paths and rows other than its own."""
    widths = [0] * len(info.fields)
    for entry in about.tables:
        try:
            table = module.get_submodule(entry.path)
        except AttributeError as error:
            raise MaskError(f"The module has no table '{entry.path}'.") from error
        if isinstance(table, FieldEmbedding):
            shapes = list(zip(table.layout.schema.cardinalities, table.layout.widths, strict=True))
        elif isinstance(table, Table):
            shapes = [(table.weight.shape[0], table.weight.shape[1])]
        else:
            raise MaskError(f"'{entry.path}' is a {type(table).__name__}, not a table.")
        if len(shapes) != len(entry.fields):
            raise MaskError(f"'{entry.path}' holds {len(shapes)} fields, the file lists {len(entry.fields)}.")
        for j, (rows, width) in zip(entry.fields, shapes, strict=True):
            if j >= len(widths) or rows != info.fields[j].cardinality:
                raise MaskError(f"'{entry.path}' has {rows} rows, the file lists others.")
            widths[j] = width
    return Layout(info.layout.schema, tuple(widths))
