"""The vectors that a head reads: the tiers of a column share one."""

from itertools import accumulate
from typing import Any

import torch
from torch import Tensor, nn

from fieldwise.core.schema import UNKNOWN, Layout


class Vectors(nn.Module):
    """Adds the columns of tiers that share a position: (B, S) to (B, columns of `layout.vectors`).

    A value has an id in one tier only, so its vector is its row there, with zeros where the tier has no column. A value
    that no tier knows has the row of `unknown` in the first. Without tiers, the embedding stays as it is.
    """

    def __init__(self, layout: Layout) -> None:
        super().__init__()
        self.shares = layout.shared is not None
        if not self.shares:
            return
        members = [own for _, own in layout.members if len(own) > 1]
        starts = [0, *accumulate(layout.schema.lengths)]
        others, ends = [own[1:] for own in members], len(members)
        place = {j: ends + i for i, j in enumerate(j for own in others for j in own)}
        place |= {own[0]: i for i, own in enumerate(members)}
        always = len(place)
        self._tiers = [place.get(j, always) for j in range(len(layout.widths))]
        most = max(map(len, others))
        self._keep("others", [[starts[(*own, *own)[i]] for own in others] for i in range(most)])
        self._keep("later", [starts[j] for own in others for j in own])
        self._keep("tiers", [self._tiers[j] for j in layout.owners.tolist()])
        self._keep("targets", layout.targets.tolist())
        self._keep("sources", _sources(layout))

    def _keep(self, name: str, values: list[Any]) -> None:
        self.register_buffer(name, torch.tensor(values), persistent=False)

    def forward(self, ids: Tensor, v: Tensor) -> Tensor:
        """The vectors of ids (B, places) whose embedding is v (B, S)."""
        if not self.shares:
            return v
        on = self.on(ids).to(v.dtype).index_select(1, self.get_buffer("tiers"))
        if torch.is_grad_enabled() and not torch.compiler.is_compiling():
            added: Tensor = _Added.apply(v, on, self.get_buffer("targets"), self.get_buffer("sources"))  # type: ignore[no-untyped-call]
            return added
        return _added(v * on, self.get_buffer("sources"))

    def reads(self, ids: Tensor, fields: list[int]) -> Tensor:
        """Whether a row of the batch reads each of the fields, (B, fields)."""
        return self.on(ids)[:, [self._tiers[j] for j in fields]]

    def on(self, ids: Tensor) -> Tensor:
        """Whether a row of the batch reads a tier: the first ones, the others, and one for fields without tiers."""
        others = self.get_buffer("others")
        elsewhere = ids.index_select(1, others[0]) != UNKNOWN
        for i in range(1, len(others)):  # a program cannot be stored with an `unbind` into nothing
            elsewhere = elsewhere | (ids.index_select(1, others[i]) != UNKNOWN)
        later = ids.index_select(1, self.get_buffer("later")) != UNKNOWN
        return torch.cat([~elsewhere, later, torch.ones_like(later[:, :1])], 1)


def _sources(layout: Layout) -> list[list[int]]:
    """For every column of the vectors, the columns that are added, by rank; S, a column of zeros, where there is none.

    In lists of the first of each, the second, and so on.
    """
    each: list[list[int]] = [[] for _ in range(layout.vectors.columns)]
    for column, target in enumerate(layout.targets.tolist()):
        each[target].append(column)
    most = max(map(len, each), default=1)
    return [[own[i] if i < len(own) else layout.columns for own in each] for i in range(most)]


def _added(v: Tensor, sources: Tensor) -> Tensor:
    """The sums of the sources (n, columns) of v (B, S)."""
    padded = torch.cat([v, v.new_zeros(v.shape[0], 1)], 1)
    total = padded.index_select(1, sources[0])
    for i in range(1, len(sources)):
        total = total + padded.index_select(1, sources[i])
    return total


class _Added(torch.autograd.Function):
    """The same of v times a mask, with one gather in the backward pass."""

    @staticmethod
    def forward(ctx: Any, v: Tensor, on: Tensor, targets: Tensor, sources: Tensor) -> Tensor:
        """(B, S) to (B, columns)."""
        ctx.save_for_backward(on, targets)
        return _added(v * on, sources)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        """(B, columns) to (B, S)."""
        on, targets = ctx.saved_tensors
        return grads[0].index_select(1, targets) * on, None, None, None
