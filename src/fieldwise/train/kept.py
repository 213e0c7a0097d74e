"""The checkpoints of one training: in one file, or in one file per process if tables are split over processes."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from fieldwise.processes.ranks import current
from fieldwise.tables.embedding import FieldEmbedding
from fieldwise.tables.optimizer import Optimizer
from fieldwise.tables.shards import Shards
from fieldwise.tables.state import Tensors
from fieldwise.train import checkpoint

Found = tuple[Tensors, dict[str, Any]]
"""Tensors, and everything else."""


class Checkpoints:
    """The checkpoints in a folder, which all processes of a training write and read together."""

    def __init__(self, folder: Path, model: nn.Module, optimizer: Optimizer, device: torch.device) -> None:
        self._folder, self._device = folder, device
        self._split: Callable[[], dict[str, Shards]] = lambda: _split(model, optimizer)

    def save(self, tensors: Tensors, info: dict[str, Any], best: bool) -> None:
        """Replaces the checkpoint."""
        ranks = current()
        if ranks.split_from is None:
            ranks.from_first(partial(checkpoint.save, self._folder, tensors, info, best))
            return
        from fieldwise.train import sharded_checkpoint as sharded

        sharded.write(self._folder, tensors, self._split(), info, best)

    def load(self) -> Found | None:
        """The checkpoint, or None if there is none."""
        ranks = current()
        rows = ranks.split_from
        ranks.from_first(partial(checkpoint.check_kind, self._folder, rows))
        if rows is None:
            return ranks.from_first(partial(checkpoint.load, self._folder, self._device))
        from fieldwise.train import sharded_checkpoint as sharded

        return sharded.read(self._folder, self._split())

    def best(self, prefix: str) -> Tensors:
        """The tensors under a prefix in the best checkpoint, such as the weights of the model."""
        ranks = current()
        if ranks.split_from is None:
            return ranks.from_first(partial(checkpoint.load_best, self._folder, prefix, self._device))
        from fieldwise.train import sharded_checkpoint as sharded

        return sharded.read_best(self._folder, prefix, self._split())


def _split(model: nn.Module, optimizer: Optimizer) -> dict[str, Shards]:
    """How the tensors of a training's state are split over the processes, by name."""
    tables = {
        f"model.{name}.tables.{width}": shards
        for name, module in model.named_modules()
        if isinstance(module, FieldEmbedding)
        for width, shards in module.shards.items()
    }
    return tables | {f"optimizer.{name}": shards for name, shards in optimizer.shards().items()}
