"""A moving average of a model's weights over epochs, which generalizes better than those of any epoch."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Final

import torch
from pydantic import Field
from torch import nn

from fieldwise.core.automatic import AUTO, Auto, number_or_auto
from fieldwise.core.errors import SettingsError
from fieldwise.processes.ranks import current
from fieldwise.tables.state import Tensors
from fieldwise.train.checkpoint import weights

BEFORE: Final = 2 / 3
"""What `auto` is for small models."""
LARGEST: Final = 2**24
"""Weights up to which `auto` is not 0: the average is one more copy of all weights, also in checkpoints."""
_Before = Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)]
Before = Annotated[_Before | Auto, number_or_auto(_Before)]


def before_of(average: Before, model: nn.Module, stage: str, rounds: bool = False) -> float:
    """The number for a model, whose tables are rounded or not; refuses one where tables are split over processes."""
    sharded = current().split_from is not None
    if average == AUTO:
        small = sum(weight.numel() for weight in model.parameters()) <= LARGEST
        return BEFORE if small and not (rounds or sharded) else 0.0
    check_average(average, sharded, stage)
    return average


def check_average(average: Before, sharded: bool, stage: str) -> None:
    """Refuse a number that sharded tables cannot use."""
    if average not in (AUTO, 0) and sharded:
        raise SettingsError(
            f"[{stage}] average = {average} keeps a copy of all weights, and tables are sharded. Allowed: 0 or auto. "
            "Leave average out."
        )


class Average:
    """The average after an epoch is `before` times that of the epoch before, plus 1 - `before` times the weights."""

    def __init__(self, before: float) -> None:
        self._before = before
        self._tensors: Tensors = {}

    @torch.no_grad()
    def add(self, model: nn.Module) -> None:
        """Adds the weights after an epoch; numbers of batches and infinite entries are the latest."""
        now = weights(model)
        for name, old in self._tensors.items():
            if now[name].is_floating_point():
                mean = torch.lerp(now[name], old, self._before)
                now[name] = torch.where(mean.isfinite(), mean, now[name])
        self._tensors = now

    @contextmanager
    def within(self, model: nn.Module) -> Iterator[None]:
        """A block in which the model has the average weights."""
        own = weights(model)
        model.load_state_dict(self._tensors)
        try:
            yield
        finally:
            model.load_state_dict(own)

    def tensors(self) -> Tensors:
        """The average; empty before the first epoch."""
        return self._tensors

    def restore(self, tensors: Tensors) -> None:
        """Restore an average."""
        self._tensors = tensors
