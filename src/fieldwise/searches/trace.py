"""What a gated search leaves to look at, step by step."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from fieldwise.core.mask import Mask
from fieldwise.gates.gate import Gate


@dataclass
class Trace:
    """The dynamics of one stage of a search; kept on the device until read, so that recording does not wait."""

    columns: Tensor
    """Which columns of the full model the stage searched, (columns,)."""
    limit: int
    """The stage's target, in the budget's unit."""
    every: int
    """Steps between two recorded rows of scores."""
    live: list[Tensor] = field(default_factory=list)
    """Live columns before each step."""
    cost: list[Tensor] = field(default_factory=list)
    """Their cost, in the budget's unit."""
    reactivated: list[Tensor] = field(default_factory=list)
    """Masked columns that came back, per step."""
    scores: list[Tensor] = field(default_factory=list)
    """The gate's scores every so many steps, (columns,) each."""

    @classmethod
    def over(cls, mask: Mask, limit: int, every: int) -> "Trace":
        """An empty trace of a search among a mask's columns."""
        return cls(torch.from_numpy(mask.indices), limit, every)

    def record(self, gate: Gate, before: Tensor, after: Tensor) -> None:
        """One step of the gate, with its live columns before and after."""
        if len(self.live) % self.every == 0:
            self.scores.append(gate.scores().clone())
        self.live.append(before.sum())
        self.cost.append((gate.costs * before).sum())
        self.reactivated.append((after & ~before).sum())

    def tensors(self) -> dict[str, Tensor]:
        """The trace as arrays: one entry per step, and one row of scores per interval."""
        lists = {"live": self.live, "cost": self.cost, "reactivated": self.reactivated, "scores": self.scores}
        arrays = {name: torch.stack(values).cpu() for name, values in lists.items() if values}
        return {**arrays, "columns": self.columns}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Takes arrays back."""
        for name in ("live", "cost", "reactivated", "scores"):
            setattr(self, name, list(tensors[name].unbind(0)) if name in tensors else [])
