"""Checkpoints: tensors in safetensors, everything else in JSON, replaced as one."""

import json
from pathlib import Path
from typing import Any, Final

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from fieldwise.core.errors import RunError
from fieldwise.core.files import replacing, write_json

INFO: Final = "checkpoint.json"
Tensors = dict[str, Tensor]


def save(folder: Path, tensors: Tensors, info: dict[str, Any]) -> None:
    """Replaces the folder's checkpoint; at any moment the old or the new one is whole.

    The JSON names the tensor file, so replacing the JSON is the one moment that counts.
    """
    number = _number(folder) + 1
    with replacing(folder / f"{number}.safetensors") as work:
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, work)
    write_json(folder / INFO, {"number": number, "info": info})
    for old in folder.glob("*.safetensors"):
        if old.name != f"{number}.safetensors":
            old.unlink()


def load(folder: Path, device: torch.device) -> tuple[Tensors, dict[str, Any]] | None:
    """The folder's checkpoint, or None where there is none."""
    if not (folder / INFO).exists():
        return None
    try:
        info = json.loads((folder / INFO).read_text(encoding="utf-8"))
        tensors = load_file(folder / f"{info['number']}.safetensors", device=str(device))
        return tensors, info["info"]
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        raise RunError(
            f"Checkpoint '{folder}' is damaged ({error}). Remove that folder; the stage then starts anew."
        ) from error


def _number(folder: Path) -> int:
    path = folder / INFO
    return int(json.loads(path.read_text(encoding="utf-8"))["number"]) if path.exists() else 0


def optimiser_tensors(optimiser: torch.optim.Optimizer) -> Tensors:
    """The optimiser's moments, by the place of their weight."""
    state = optimiser.state_dict()["state"]
    return {f"{place}.{name}": tensor for place, entry in state.items() for name, tensor in entry.items()}


def restore_optimiser(optimiser: torch.optim.Optimizer, tensors: Tensors) -> None:
    """The inverse of `optimiser_tensors`."""
    state: dict[int, Tensors] = {}
    for path, tensor in tensors.items():
        place, name = path.split(".", 1)
        state.setdefault(int(place), {})[name] = tensor
    groups = optimiser.state_dict()["param_groups"]
    optimiser.load_state_dict({"state": state, "param_groups": groups})


def under(prefix: str, tensors: Tensors) -> Tensors:
    """The tensors whose name begins with `prefix.`, without it."""
    return {name[len(prefix) + 1 :]: t for name, t in tensors.items() if name.startswith(f"{prefix}.")}


def named(prefix: str, tensors: Tensors) -> Tensors:
    """The tensors with `prefix.` before their names."""
    return {f"{prefix}.{name}": tensor for name, tensor in tensors.items()}


def weights(model: nn.Module) -> Tensors:
    """A copy of a model's weights and statistics, so that training on does not change it."""
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
