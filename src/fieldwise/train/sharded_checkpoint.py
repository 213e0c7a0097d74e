"""Checkpoints of tables that are split over processes: each writes its rows, and any number of processes reads them.

torch.distributed.checkpoint writes safetensors files, which hold no code. A split table is stored field by field, so
that what is stored does not depend on the number of processes. The JSON commits a checkpoint, as it does for one
process.
"""

import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader, HuggingFaceStorageWriter
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Shard

from fieldwise.core.files import write_json
from fieldwise.core.plain_files import read_json
from fieldwise.processes.ranks import current
from fieldwise.tables.shards import Shards
from fieldwise.tables.state import Tensors, under
from fieldwise.train.checkpoint import INFO, SPLIT_FROM, damage, numbers

SCALAR: Final = "()"
"""Ends the name of a tensor without a dimension, which is stored with one."""
Split = dict[str, Shards]
"""How tensors are split, by name."""


def write(folder: Path, tensors: Tensors, split: Split, info: dict[str, Any], best: bool = False) -> None:
    """Replaces the folder's checkpoint; all processes call it. At any time, the old or the new one is complete."""
    ranks = current()
    with damage(folder):
        before = ranks.from_first(lambda: numbers(folder))
    number = before["number"] + 1
    now = {"number": number, "best": number if best else before["best"]}
    home = folder / str(number)
    ranks.from_first(lambda: _emptied(home))
    with ranks.talking(), _quiet():
        writer = HuggingFaceStorageWriter(str(home), save_distributed=True)
        save(_stored(tensors, split), storage_writer=writer, no_dist=ranks.size == 1)
    ranks.from_first(lambda: _commit(folder, {**now, SPLIT_FROM: ranks.split_from, "info": info}))


@contextmanager
def _quiet() -> Iterator[None]:
    """Hides torch's warning that a single process is one."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "torch.distributed is disabled")
        yield


def _emptied(home: Path) -> None:
    shutil.rmtree(home, ignore_errors=True)  # of a process that was killed
    home.mkdir(parents=True)


def _commit(folder: Path, values: dict[str, Any]) -> None:
    write_json(folder / INFO, values)
    for old in (path for path in folder.iterdir() if path.is_dir()):
        if old.name.isdecimal() and old.name not in map(str, (values["number"], values["best"])):
            shutil.rmtree(old, ignore_errors=True)


def read(folder: Path, split: Split) -> tuple[Tensors, dict[str, Any]] | None:
    """This process's part of the folder's checkpoint, or None if there is none; all processes call it."""
    found = current().from_first(lambda: _found(folder))
    if found is None:
        return None
    with damage(folder):
        return _read(folder / str(found["number"]), split), {**found["info"], "number": int(found["number"])}


def read_best(folder: Path, prefix: str, split: Split) -> Tensors:
    """This process's part of the tensors under a prefix in the best checkpoint."""
    found = current().from_first(lambda: numbers(folder))
    with damage(folder):
        return under(prefix, _read(folder / str(found["best"]), split, f"{prefix}."))


def _found(folder: Path) -> dict[str, Any] | None:
    if not (folder / INFO).exists():
        return None
    with damage(folder):
        return dict(read_json(folder / INFO))


def _stored(tensors: Tensors, split: Split) -> dict[str, Tensor]:
    """Tensors as they are stored, sharing their memory: split ones by field, and none without a dimension."""
    found: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if name in split:
            found |= _by_field(name, tensor, split[name])
        else:
            found[name if tensor.dim() else name + SCALAR] = tensor.detach().reshape(tensor.shape or 1)
    return found


def _by_field(name: str, tensor: Tensor, shards: Shards) -> dict[str, Tensor]:
    """A split tensor's parts, whose memory they share."""
    parts = {f"{name}/{place}": tensor.detach()[span] for place, span in enumerate(shards.spans)}
    if current().size == 1:
        return parts
    world = dist.group.WORLD
    assert world is not None
    mesh = DeviceMesh.from_group(world, "cpu")
    sizes = [torch.Size([count, *tensor.shape[1:]]) for count in shards.cardinalities]
    return {
        key: DTensor.from_local(part, mesh, [Shard(0)], run_check=False, shape=size, stride=_stride(size))
        for (key, part), size in zip(parts.items(), sizes, strict=True)
    }


def _stride(size: torch.Size) -> tuple[int, ...]:
    return tuple(size[axis + 1 :].numel() for axis in range(len(size)))


def _read(home: Path, split: Split, prefix: str = "") -> Tensors:
    """Reads this process's part of the tensors whose names begin with a prefix."""
    reader = HuggingFaceStorageReader(str(home))
    known = reader.read_metadata().state_dict_metadata
    about: dict[str, Any] = {name: one for name, one in known.items() if name.startswith(prefix)}
    names = {name.rpartition("/")[0] or name for name in about}
    found: Tensors = {}
    for name in sorted(names):
        own, shards = about.get(name), split.get(name)
        if (own is None) != (shards is not None):
            raise ValueError(f"'{name}' is {'whole' if shards else 'split'}")
        one = own or about[f"{name}/0"]
        size = one.size if shards is None else (shards.rows, *one.size[1:])
        found[name] = torch.empty(size, dtype=one.properties.dtype)
    with _quiet():
        load(_stored(found, split), storage_reader=reader, no_dist=current().size == 1)
    scalars = {name for name in found if name.endswith(SCALAR)}
    return {name.removesuffix(SCALAR): t.reshape(()) if name in scalars else t for name, t in found.items()}
