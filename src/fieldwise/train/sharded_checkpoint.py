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
from torch.distributed.checkpoint.api import CheckpointException
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

FILE: Final = 2**26
"""Bytes after which another file is begun, counted over all processes."""
SCALAR: Final = "()"
"""Ends the name of a tensor without a dimension, which is stored with one."""
Split = dict[str, Shards]
"""How tensors are split, by name."""


def write(folder: Path, tensors: Tensors, split: Split, info: dict[str, Any], best: bool = False) -> None:
    """Replaces the folder's checkpoint; all processes call it. At any time, the old or the new one is complete."""
    ranks, split_from = current(), current().split_from
    with damage(folder):
        before = ranks.from_first(lambda: numbers(folder))
    number = before["number"] + 1
    now = {"number": number, "best": number if best else before["best"]}
    home = folder / f"{number}.partial"
    ranks.from_first(lambda: _emptied(folder, home))
    stored = _stored(tensors, split)
    with _unwrapped(), ranks.talking():
        writer = HuggingFaceStorageWriter(str(home), _files(stored), save_distributed=True)
        save(stored, storage_writer=writer, no_dist=ranks.size == 1)
    ranks.from_first(lambda: _commit(folder, home, {**now, SPLIT_FROM: split_from, "info": info}))


@contextmanager
def _unwrapped() -> Iterator[None]:
    """Raises what a process raised while it wrote or read; hides torch's warning that a single process is one."""
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "torch.distributed is disabled")
            yield
    except CheckpointException as error:
        raise next(iter(error.failures.values()))[0] from error


def _files(stored: dict[str, Tensor]) -> dict[str, int]:
    """The file of each tensor, from 1: what is written to one file is in memory twice meanwhile."""
    found, size = dict[str, int](), 0
    for name, tensor in stored.items():
        found[name] = 1 + size // FILE
        size += tensor.nbytes
    return found


def _emptied(folder: Path, home: Path) -> None:
    """Makes an empty folder for a checkpoint, and removes what processes that were killed have left."""
    folder.mkdir(parents=True, exist_ok=True)
    _remove(folder, {str(number) for number in numbers(folder).values()})
    home.mkdir()


def _commit(folder: Path, home: Path, values: dict[str, Any]) -> None:
    home.replace(folder / str(values["number"]))
    write_json(folder / INFO, values)
    _remove(folder, {str(values["number"]), str(values["best"])})


def _remove(folder: Path, kept: set[str]) -> None:
    for old in folder.iterdir():
        if old.is_dir() and old.name not in kept:
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
    with _unwrapped(), current().talking():
        load(_stored(found, split), storage_reader=reader, no_dist=current().size == 1)
    scalars = {name for name in found if name.endswith(SCALAR)}
    return {name.removesuffix(SCALAR): t.reshape(()) if name in scalars else t for name, t in found.items()}
