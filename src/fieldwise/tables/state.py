"""State of optimizers and models as named tensors, for checkpoints."""

from collections.abc import Mapping

import torch
from torch import Tensor

Tensors = dict[str, Tensor]
"""Tensors by name."""


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> Tensors:
    """The optimizer's moments, named by the index of their weight."""
    state = optimizer.state_dict()["state"]
    return {f"{place}.{name}": tensor for place, entry in state.items() for name, tensor in entry.items()}


def restore_optimizer(optimizer: torch.optim.Optimizer, tensors: Tensors) -> None:
    """Restore the state that `optimizer_tensors` returned."""
    state: dict[int, Tensors] = {}
    for path, tensor in tensors.items():
        place, name = path.split(".", 1)
        state.setdefault(int(place), {})[name] = tensor
    weights = [weight for group in optimizer.param_groups for weight in group["params"]]
    for index, moments in state.items():
        shape, found = tuple(weights[index].shape), {name: tuple(tensor.shape) for name, tensor in moments.items()}
        if found != {"step": (), "exp_avg": shape, "exp_avg_sq": shape}:
            raise ValueError(f"the moments of weight {index} are {found}, the weight has shape {shape}")
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": state, "param_groups": groups})


def separate(tensors: Mapping[str, Tensor]) -> Tensors:
    """Contiguous tensors of which no two share memory, as a file needs them; tied weights are stored twice."""
    found: Tensors = {}
    seen: set[int] = set()
    for name, tensor in tensors.items():
        place = tensor.untyped_storage().data_ptr()
        found[name] = tensor.clone() if place in seen else tensor.contiguous()
        seen.add(place)
    return found


def under(prefix: str, tensors: Tensors) -> Tensors:
    """The tensors whose name begins with `prefix.`, with the prefix removed."""
    return {name[len(prefix) + 1 :]: t for name, t in tensors.items() if name.startswith(f"{prefix}.")}


def named(prefix: str, tensors: Tensors) -> Tensors:
    """The tensors with `prefix.` added to their names."""
    return {f"{prefix}.{name}": tensor for name, tensor in tensors.items()}
