"""Checkpoints: tensors in safetensors, everything else in JSON, replaced atomically."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import nn

from fieldwise.core.errors import RunError
from fieldwise.core.files import replacing, write_json
from fieldwise.core.plain_files import check_safetensors, read_json
from fieldwise.tables.state import Tensors, separate

INFO: Final = "checkpoint.json"
SPLIT_FROM: Final = "split_from"
"""Key of the rows from which tables are split over processes, in the JSON."""


def save(folder: Path, tensors: Tensors, info: dict[str, Any], best: bool = False) -> None:
    """Replace the folder's checkpoint. At any time, either the old or the new one is complete.

    The JSON names the tensor files, so replacing the JSON commits the checkpoint. The file of the `best` checkpoint
    stays until a later one is best.
    """
    with damage(folder):
        before = numbers(folder)
    number = before["number"] + 1
    now = {"number": number, "best": number if best else before["best"]}
    with replacing(folder / f"{number}.safetensors") as work:
        save_file(separate(tensors), work)
    write_json(folder / INFO, {**now, "info": info})
    for old in folder.glob("*.safetensors"):
        if old.stem not in map(str, now.values()):
            old.unlink()


def load(folder: Path, device: torch.device) -> tuple[Tensors, dict[str, Any]] | None:
    """The folder's checkpoint, or None if there is none."""
    if not (folder / INFO).exists():
        return None
    with damage(folder):
        number = numbers(folder)["number"]
        path = folder / f"{number}.safetensors"
        check_safetensors(path)
        return load_file(path, device=str(device)), {**read_json(folder / INFO)["info"], "number": number}


def check_kind(folder: Path, split_from: int | None) -> None:
    """Refuses a checkpoint whose tables were split otherwise."""
    if not (folder / INFO).exists():
        return
    with damage(folder):
        had = read_json(folder / INFO).get(SPLIT_FROM)
    if had != split_from:
        words = {rows: "replicated" if rows is None else f"sharded from {rows} rows" for rows in (had, split_from)}
        raise RunError(
            f"Checkpoint '{folder}' has tables that are {words[had]}, the settings say {words[split_from]}. Use the "
            "[run] tables and sharded_from of before, or remove that folder; the stage then starts again."
        )


def load_best(folder: Path, prefix: str, device: torch.device) -> Tensors:
    """The tensors under a prefix in the folder's best checkpoint."""
    with damage(folder):
        path = folder / f"{numbers(folder)['best']}.safetensors"
        check_safetensors(path)
        with safe_open(path, framework="pt", device=str(device)) as file:
            names = [name for name in file.keys() if name.startswith(f"{prefix}.")]  # noqa: SIM118, not a dict
            return {name[len(prefix) + 1 :]: file.get_tensor(name) for name in names}


@contextmanager
def damage(folder: Path) -> Iterator[None]:
    """Report a damaged checkpoint if reading or restoring it fails."""
    try:
        yield
    except (
        OSError, ValueError, KeyError, TypeError, IndexError, AttributeError, RuntimeError, SafetensorError,
    ) as error:  # fmt: skip
        why = " ".join(str(error).split())[:300]
        raise RunError(
            f"Checkpoint '{folder}' is damaged ({why}). Remove that folder; the stage then starts again."
        ) from error


def numbers(folder: Path) -> dict[str, int]:
    """The numbers of the last and the best checkpoint; 0 if there is none."""
    path = folder / INFO
    found = read_json(path) if path.exists() else {}
    return {name: int(found.get(name, 0)) for name in ("number", "best")}


def weights(model: nn.Module) -> Tensors:
    """A copy of a model's weights and batch statistics, which further training does not change."""
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
