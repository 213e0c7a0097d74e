"""Which kernels can run, and which are to."""

import os
from functools import cache
from importlib.util import find_spec
from typing import Final

import torch

from fieldwise.core.errors import SettingsError

VARIABLE: Final = "FIELDWISE_KERNELS"
"""Environment variable that chooses the kernels."""
CHOICES: Final = ("all", "tables", "none")
"""all, the default: kernels for tables, the loss, and the heads of FM, DeepFM and DCN-V2; tables: those for tables, FM,
gates and the loss; none: PyTorch's operations everywhere."""


def has_kernels(device: torch.device) -> bool:
    """Whether tensors on this device use Triton kernels: they are chosen, and can run."""
    return device.type == "cuda" and _chosen() != "none" and can_run(device)


def has_all_kernels(device: torch.device) -> bool:
    """Whether tensors on this device use the kernels for heads too."""
    return device.type == "cuda" and _chosen() == "all" and can_run(device)


def _chosen() -> str:
    found = os.environ.get(VARIABLE, CHOICES[0])
    if found not in CHOICES:
        raise SettingsError(f"Environment variable {VARIABLE} = '{found}'. Choose from: {', '.join(CHOICES)}.")
    return found


@cache
def can_run(device: torch.device) -> bool:
    """Whether kernels can run on this device: a CUDA GPU of 2020 or later, and Triton installed."""
    return (
        device.type == "cuda" and find_spec("triton") is not None and torch.cuda.get_device_capability(device) >= (8, 0)
    )
