"""Store a compact model as weights and JSON, and rebuild it without the weights of the full model."""

import json
from collections.abc import Mapping
from typing import Any, Final

import torch
from torch import Tensor, nn

from fieldwise.core.errors import MaskError
from fieldwise.pruning.copying import replaced
from fieldwise.pruning.narrow import (
    NARROW,
    Conv,
    Description,
    NarrowConv,
    NarrowFields,
    NarrowLinear,
    NarrowNorm,
    NarrowTable,
    Norm,
    NoTable,
)
from fieldwise.pruning.sites import Table
from fieldwise.tables.embedding import FieldEmbedding

FORMAT: Final = "fieldwise-compact/1"


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
    swaps: dict[nn.Module, nn.Module] = {}
    tied: dict[int, nn.Parameter] = {}
    for name, entry in values["modules"].items():
        try:
            old = model.get_submodule(name)
        except AttributeError as error:
            raise MaskError(
                f"{type(model).__name__} has no '{name}'. Build the model with the same settings as the compact one."
            ) from error
        swaps[old] = _narrow(name, old, entry, tied)
    device = next((tensor.device for tensor in state.values()), torch.device("cpu"))
    small = replaced(model, swaps)
    try:
        small.load_state_dict(dict(state), assign=True)
    except RuntimeError as error:
        line = " ".join(str(error).split())
        raise MaskError(
            f"The weights do not fit {type(model).__name__}: {line[:300]}. Load the weights stored with it."
        ) from error
    for module in small.modules():
        if isinstance(module, NARROW):  # the state_dict does not store their index buffers
            _settle(module, device)
    lost = [name for name, tensor in small.named_buffers() if tensor.is_meta]
    if lost:
        raise MaskError(
            f"Buffers {', '.join(lost[:5])} are not stored with the weights. Build the model on a real device."
        )
    return small


def _settle(module: nn.Module, device: torch.device) -> None:
    for inner in module.modules():
        for name, buffer in inner._buffers.items():
            if buffer is not None and name in inner._non_persistent_buffers_set and not buffer.is_meta:
                inner._buffers[name] = buffer.to(device)


def _narrow(name: str, old: nn.Module, entry: Mapping[str, Any], tied: dict[int, nn.Parameter]) -> nn.Module:
    """Return the narrow module that an entry describes."""
    kind = entry.get("kind")
    if kind == "table" and isinstance(old, Table | FieldEmbedding):
        kept = list(entry["kept"])
        if not kept:
            new: nn.Module = NoTable(old)
        elif isinstance(old, FieldEmbedding):
            new = NarrowFields(old, kept)
        else:
            new = NarrowTable(old, kept, tied.get(id(old.weight)))
            tied[id(old.weight)] = new.table.get_parameter("weight")
    elif kind == "linear" and isinstance(old, nn.Linear):
        new = NarrowLinear(old, entry["inputs"], entry["outputs"], bool(entry["bias"]))
    elif kind == "conv" and isinstance(old, Conv):
        new = NarrowConv(old, entry["inputs"], entry["outputs"])
    elif kind == "norm" and isinstance(old, Norm):
        new = NarrowNorm(old, entry["live"])
    else:
        raise MaskError(f"'{name}' is a {type(old).__name__}, but the description says {kind!r}. Build the same model.")
    return new
