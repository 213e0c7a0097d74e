"""The job of every contender, and its interface."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

WIDTH: Final = 16
HIDDEN: Final = (16, 16)
"""Layers of the MLP of DeepFM and DCN-V2, with batch normalization; FM and AutoInt have no MLP."""
CROSS_LAYERS: Final = 3
ATTENTION_LAYERS, HEADS = 3, 2
LEARNING_RATE: Final = 1e-3
LABEL: Final = "label"


@dataclass(frozen=True)
class Job:
    """One model to train on the rows in a folder; a turn is one pass over them."""

    folder: Path
    """Holds ids.npy and labels.npy; the contender may write other files to it."""
    cardinalities: tuple[int, ...]
    model: str
    """fm, deepfm, autoint or dcnv2."""
    batch: int
    ready: bool
    """Whether batches are in memory and only steps are timed, instead of using the library's own loader."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the fields."""
        return tuple(f"f{j}" for j in range(len(self.cardinalities)))

    @property
    def first_order(self) -> bool:
        """Whether every id has a first-order weight in addition to its embedding."""
        return self.model != "dcnv2"

    def rows(self) -> tuple[NDArray[np.int32], NDArray[np.uint8]]:
        """Returns all ids (N, F) and labels (N,)."""
        return np.load(self.folder / "ids.npy"), np.load(self.folder / "labels.npy")

    def batches(self) -> list[tuple[NDArray[np.int32], NDArray[np.uint8]]]:
        """Returns the rows in batches, in order, each a copy."""
        ids, labels = self.rows()
        starts = range(0, len(labels), self.batch)
        return [(ids[s : s + self.batch].copy(), labels[s : s + self.batch].copy()) for s in starts]


@dataclass(frozen=True)
class Contender:
    """A model of a library, ready to train for a turn."""

    run: Callable[[], None]
    """Trains for a turn; timed."""
    loss: Callable[[], float]
    """Returns the mean loss of the last turn; not timed."""
    parameters: int
    """Number of trained parameters."""


def trained(model: Any) -> int:
    """Returns the number of trainable parameters of a torch module."""
    return sum(weight.numel() for weight in model.parameters() if weight.requires_grad)
