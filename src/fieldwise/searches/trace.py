"""A step-by-step recording of a gated search."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fieldwise.core.mask import Mask
from fieldwise.gates.gate import Gate
from fieldwise.kernels.available import has_kernels


@dataclass
class Trace:
    """The dynamics of one stage of a search. Stays on the device until read, so that recording does not synchronize."""

    columns: Tensor
    """Columns of the full model that the stage searched, (columns,)."""
    limit: int
    """The stage's target, in the budget's unit."""
    every: int
    """Steps between two recorded rows of scores."""
    _counts: Tensor
    """Per step, up to the maximum of the stage: live columns before it, their cost, and reactivated columns."""
    _scores: Tensor
    """The gate's scores, one row per `every` steps."""
    _at: Tensor
    """Number of recorded steps, (1,)."""

    @classmethod
    def over(cls, mask: Mask, limit: int, every: int, steps: int, device: torch.device) -> "Trace":
        """An empty trace of a search over a mask's columns with at most `steps` steps."""
        columns = torch.from_numpy(mask.indices)
        counts = torch.zeros(steps, 3, dtype=torch.int64, device=device)
        scores = torch.zeros(steps // every + 1, len(columns), dtype=torch.float64, device=device)
        return cls(columns, limit, every, counts, scores, torch.zeros(1, dtype=torch.int64, device=device))

    def among(self, mask: Mask) -> "Trace":
        """The trace of a search over a mask's compact layout, with columns of its full layout."""
        return replace(self, columns=torch.from_numpy(mask.indices)[self.columns])

    def record(self, gate: Gate, before: Tensor, after: Tensor) -> None:
        """Append one step of the gate, with its live columns before and after."""
        if has_kernels(before.device):
            from fieldwise.kernels.gates import record

            costs, now = gate.costs, gate.scores()
            record(before, after, costs, now, self._counts, self._scores, self._at, self.every)
            return
        counts = torch.stack([before.sum(), (gate.costs * before).sum(), (after & ~before).sum()])
        self._counts.index_copy_(0, self._at, counts.unsqueeze(0))
        place = self._at // self.every
        now = gate.scores()[: len(self.columns)]  # without first-order weights
        scores = torch.where(self._at % self.every == 0, now, self._scores[place])
        self._scores.index_copy_(0, place, scores)
        self._at += 1

    @property
    def steps(self) -> int:
        """Number of recorded steps."""
        return int(self._at)

    def tensors(self) -> dict[str, Tensor]:
        """The trace as arrays: one entry per step, and one row of scores per interval."""
        live, cost, reactivated = self._counts[: self.steps].cpu().unbind(1)
        scores = self._scores[: -(-self.steps // self.every)].cpu()
        counts = {"live": live.clone(), "cost": cost.clone(), "reactivated": reactivated.clone()}
        return {**counts, "scores": scores, "columns": self.columns}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Restore a checkpoint."""
        counts = torch.stack([tensors[name] for name in ("live", "cost", "reactivated")], 1)
        self._counts[: len(counts)] = counts
        self._scores[: len(tensors["scores"])] = tensors["scores"]
        self._at.fill_(len(counts))
