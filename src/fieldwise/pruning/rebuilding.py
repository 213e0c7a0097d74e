"""Store a compact model as weights and JSON, and rebuild it without the weights of the full model."""

import json
from collections.abc import Mapping
from typing import Any, Final

import torch
from torch import Tensor, nn

from fieldwise.core.errors import MaskError
from fieldwise.pruning.copying import attributes, replaced
from fieldwise.pruning.narrow import Description, NarrowFields, NarrowTable, NoTable
from fieldwise.pruning.narrow_layers import NARROW, Conv, NarrowConv, NarrowLinear, NarrowNorm, Norm
from fieldwise.pruning.sites import Table
from fieldwise.tables.embedding import FieldEmbedding

FORMAT: Final = "fieldwise-compact/1"
FEATURES: Final = 2**22
"""Features that the full form of narrow modules may have beyond the numbers that are stored."""


def describe(small: nn.Module) -> Description:
    """Describe the narrow modules of a compact model and the columns they keep, as JSON values."""
    modules = {name: module.description() for name, module in small.named_modules() if isinstance(module, NARROW)}
    return {"format": FORMAT, "modules": modules}


def rebuild(model: nn.Module, description: Mapping[str, Any] | str, state: Mapping[str, Tensor]) -> nn.Module:
    """Rebuild a compact model from a new model of full width, a description and a `state_dict`.

    The weights of the new model are not used. Built under `torch.device("meta")`, it takes no memory.
    """
    values = json.loads(description) if isinstance(description, str) else description
    if values.get("format") != FORMAT:
        raise MaskError(
            f"Not a compact model: format {values.get('format')!r}. Allowed: {FORMAT!r}. Store what describe() returns."
        )
    _check_numbers(model, values["modules"], sum(tensor.numel() for tensor in state.values()))
    swaps: dict[nn.Module, nn.Module] = {}
    tied: dict[int, nn.Parameter] = {}
    for name, entry in values["modules"].items():
        old = _submodule(model, name)
        swaps[old] = _narrow(name, old, entry, tied)
    device = next((tensor.device for tensor in state.values()), torch.device("cpu"))
    small = replaced(model, swaps)
    restore(small, state)
    for module in small.modules():
        if isinstance(module, NARROW):  # the state_dict does not store their index buffers
            _settle(module, device)
    lost = [name for name, tensor in small.named_buffers() if tensor.is_meta]
    lost += ["an attribute" for tensor in attributes(small) if tensor.is_meta]
    if lost:
        raise MetaError(
            f"Buffers {', '.join(lost[:5])} are not stored with the weights. Build the model on a real device."
        )
    return small


class MetaError(MaskError):
    """A model that cannot be rebuilt from the meta device, because it computes values while it is built."""


def _check_numbers(model: nn.Module, entries: Mapping[str, Any], stored: int) -> None:
    """Refuse descriptions that ask for more numbers than are stored, before memory is allocated."""
    claimed = features = 0
    for name, entry in entries.items():
        old = _submodule(model, name)
        features += _features(old)
        if isinstance(old, FieldEmbedding) and entry.get("kind") == "table":  # the only one that is allocated here
            starts, kept = old.layout.starts, _places(name, entry["kept"], old.layout.columns)
            rows = old.layout.schema.cardinalities
            claimed += sum(rows[j] * sum(starts[j] <= k < starts[j + 1] for k in kept) for j in range(len(rows)))
    if claimed > stored:
        raise MaskError(f"The tables need {claimed} numbers, but {stored} are stored. Store the model again.")
    if features > stored + FEATURES:
        raise MaskError(
            f"The full model has {features:,} features, but {stored:,} numbers are stored. Store the model again."
        )


def _features(old: nn.Module) -> int:
    """Return the inputs and outputs of a full module, which its narrow form gathers and scatters."""
    if isinstance(old, FieldEmbedding):
        return old.layout.columns
    if isinstance(old, Norm):
        return old.num_features
    if isinstance(old, nn.Linear | Conv):
        return sum(old.weight.shape[:2])
    return old.embedding_dim if isinstance(old, Table) else 0


def _submodule(model: nn.Module, name: str) -> nn.Module:
    try:
        return model.get_submodule(name)
    except AttributeError as error:
        raise MaskError(
            f"{type(model).__name__} has no '{name}'. Build the model with the same settings as the compact one."
        ) from error


def restore(model: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Give a model, which may be on the meta device, these weights and buffers; tied weights stay tied."""
    state, wanted = dict(state), model.state_dict()
    problems = [f"'{name}' is not part of it" for name in state if name not in _all_names(model)]
    done: dict[int, Tensor] = {}
    for name, old in wanted.items():
        new = state.get(name)
        if new is None:
            problems.append(f"'{name}' is missing")
        elif new.shape != old.shape or new.dtype != old.dtype:
            problems.append(f"'{name}' is {tuple(new.shape)} of {new.dtype}, not {tuple(old.shape)} of {old.dtype}")
    if problems:
        raise MaskError(
            f"The weights do not fit {type(model).__name__}: {'; '.join(problems)[:300]}. Load the weights stored with "
            "it."
        )
    for path, module in model.named_modules():
        prefix = f"{path}." if path else ""
        for slots in (module._parameters, module._buffers):
            for name, given in slots.items():
                if given is None or prefix + name not in state:
                    continue
                if id(given) not in done:
                    value = state[prefix + name]
                    is_weight = isinstance(given, nn.Parameter)
                    done[id(given)] = nn.Parameter(value, given.requires_grad) if is_weight else value
                slots[name] = done[id(given)]


def _all_names(model: nn.Module) -> set[str]:
    """Return the names of all weights and buffers, also of buffers that a state_dict leaves out."""
    pairs = (*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False))
    return {name for name, _ in pairs}


def _settle(module: nn.Module, device: torch.device) -> None:
    for inner in module.modules():
        for name, buffer in inner._buffers.items():
            if buffer is not None and name in inner._non_persistent_buffers_set and not buffer.is_meta:
                inner._buffers[name] = buffer.to(device)


def unstored(small: nn.Module) -> dict[str, Tensor]:
    """Return the buffers that a state_dict leaves out; those of narrow modules follow from their description."""
    own = {id(b) for module in small.modules() if isinstance(module, NARROW) for b in module.buffers()}
    known = small.state_dict().keys()
    return {name: b for name, b in small.named_buffers() if name not in known and id(b) not in own}


def _narrow(name: str, old: nn.Module, entry: Mapping[str, Any], tied: dict[int, nn.Parameter]) -> nn.Module:
    """Return the narrow module that an entry describes."""
    kind = entry.get("kind")
    if kind == "table" and isinstance(old, FieldEmbedding):
        kept = _places(name, entry["kept"], old.layout.columns)
        new: nn.Module = NarrowFields(old, kept) if kept else NoTable(old)
    elif kind == "table" and isinstance(old, Table):
        kept = _places(name, entry["kept"], old.weight.shape[1])
        new = NarrowTable(old, kept, tied.get(id(old.weight))) if kept else NoTable(old)
        if isinstance(new, NarrowTable):
            tied[id(old.weight)] = new.table.get_parameter("weight")
    elif kind == "linear" and isinstance(old, nn.Linear):
        new = NarrowLinear(old, *_ends(name, old, entry), bool(entry["bias"]))
    elif kind == "conv" and isinstance(old, Conv):
        new = NarrowConv(old, *_ends(name, old, entry))
    elif kind == "norm" and isinstance(old, Norm):
        new = NarrowNorm(old, _places(name, entry["live"], old.num_features))
    else:
        raise MaskError(f"'{name}' is a {type(old).__name__}, but the description says {kind!r}. Build the same model.")
    return new


def _ends(name: str, old: nn.Linear | Conv, entry: Mapping[str, Any]) -> tuple[list[int], list[int]]:
    """Return the inputs and outputs that a layer keeps."""
    outputs, inputs = old.weight.shape[:2]
    return _places(name, entry["inputs"], inputs), _places(name, entry["outputs"], outputs)


def _places(name: str, given: Any, size: int) -> list[int]:
    """Return indices of features; refuses any that are not ascending or not there."""
    known = isinstance(given, list) and all(type(k) is int and 0 <= k < size for k in given)
    if not known or given != sorted(set(given)):
        raise MaskError(f"'{name}' keeps {given!r:.80}. Allowed: ascending places from 0 to {size - 1}.")
    return list(given)
