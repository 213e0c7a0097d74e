"""Copies of a model with some modules replaced; the replaced modules are never copied."""

import copy
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from fieldwise.core.errors import MaskError

Swaps = Mapping[nn.Module, nn.Module]
"""Maps each old module to its replacement."""


def copied(model: nn.Module, swaps: Swaps, weights: Mapping[Tensor, Tensor]) -> nn.Module:
    """Return a deep copy with every reference to an old module or an old weight replaced by the new one."""
    memo: dict[int, Any] = {id(old): new for old, new in swaps.items()}
    memo |= {id(old): new for old, new in weights.items()}
    for tensor in attributes(model):
        if not tensor.is_leaf:  # copy.deepcopy rejects tensors that are not graph leaves
            memo[id(tensor)] = tensor.detach().clone()
    try:
        small = copy.deepcopy(model, memo)
    except Exception as error:
        line = (str(error).strip().splitlines() or [""])[0]
        raise MaskError(
            f"{type(model).__name__} cannot be deep-copied ({type(error).__name__}: {line[:160]}). "
            "Call compact(inplace=True), which changes the model itself."
        ) from error
    for optimizer in _optimizers(small):  # optimizer state of the full width does not fit a narrow weight
        optimizer.state = defaultdict(dict)
        if len(optimizer.param_groups) == 1:
            optimizer.param_groups[0]["params"] = list(small.parameters())
    return small


def replaced(model: nn.Module, swaps: Swaps) -> nn.Module:
    """Replace modules in place, also in lists and dicts that modules hold, and return the model."""
    if model in swaps:
        return swaps[model]
    for module in list(model.modules()):
        for name, child in module._modules.items():
            if child is not None and child in swaps:
                module._modules[name] = swaps[child]
        for value in vars(module).values():
            _swap_within(value, swaps)
    return model


def _swap_within(value: Any, swaps: Swaps) -> None:
    places: Any = value.items() if type(value) is dict else enumerate(value) if type(value) is list else ()
    for place, entry in list(places):
        if isinstance(entry, nn.Module) and entry in swaps:
            value[place] = swaps[entry]


def attributes(model: nn.Module) -> Iterator[Tensor]:
    """Yield tensors that modules hold as plain attributes, also in lists and dicts."""
    for module in model.modules():
        for name, value in vars(module).items():
            if name in ("_parameters", "_modules"):
                continue
            yield from _tensors(value, 0)


def _tensors(value: Any, depth: int) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict | list | tuple) and depth < 3:
        for entry in value.values() if isinstance(value, dict) else value:
            yield from _tensors(entry, depth + 1)


def _optimizers(model: nn.Module) -> Iterator[torch.optim.Optimizer]:
    for module in model.modules():
        for value in vars(module).values():
            if isinstance(value, torch.optim.Optimizer):
                yield value
