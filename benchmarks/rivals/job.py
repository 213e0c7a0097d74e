"""What every contender is asked to do, and what it gives back."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

WIDTH: Final = 16
HIDDEN: Final = (16, 16)
"""Of the MLP of DeepFM and DCN-V2, with batch normalization; FM and AutoInt have none."""
CROSS_LAYERS: Final = 3
ATTENTION_LAYERS, HEADS = 3, 2
LEARNING_RATE: Final = 1e-3
LABEL: Final = "label"


@dataclass(frozen=True)
class Job:
    """One model to train on the rows in a folder, turn by turn; a turn is one pass over them."""

    folder: Path
    """Holds ids.npy and labels.npy; anything else may be written beside them."""
    cardinalities: tuple[int, ...]
    model: str
    """fm, deepfm, autoint or dcnv2."""
    batch: int
    ready: bool
    """Whether batches lie ready in memory, so that steps alone are timed, or the library's own loader makes them."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the fields."""
        return tuple(f"f{j}" for j in range(len(self.cardinalities)))

    @property
    def first_order(self) -> bool:
        """Whether every id has a weight of its own beside its embedding."""
        return self.model != "dcnv2"

    def rows(self) -> tuple[NDArray[np.int32], NDArray[np.uint8]]:
        """All ids (N, F) and labels (N,)."""
        return np.load(self.folder / "ids.npy"), np.load(self.folder / "labels.npy")

    def batches(self) -> list[tuple[NDArray[np.int32], NDArray[np.uint8]]]:
        """The rows in batches, in order, each an array of its own."""
        ids, labels = self.rows()
        starts = range(0, len(labels), self.batch)
        return [(ids[s : s + self.batch].copy(), labels[s : s + self.batch].copy()) for s in starts]


@dataclass(frozen=True)
class Contender:
    """A model of some library, ready to be trained for a turn."""

    run: Callable[[], None]
    """Trains for a turn. Timed."""
    loss: Callable[[], float]
    """The mean loss of the last turn. Not timed."""
    parameters: int
    """Numbers that are trained."""


def trained(model: Any) -> int:
    """The parameters of a torch module that a gradient reaches."""
    return sum(weight.numel() for weight in model.parameters() if weight.requires_grad)
