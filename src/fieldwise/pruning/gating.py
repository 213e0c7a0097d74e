"""Forward hooks that multiply table outputs by one value per column."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from fieldwise.core.errors import SettingsError
from fieldwise.pruning.sites import Site, Tables

Change = Callable[[Site, Tensor], Tensor]
"""Maps a site and its output to the tensor that the model gets instead."""
HALF = (torch.float16, torch.bfloat16)


class Gating:
    """The gate of a model: `drawn` applies in training mode, `mean` in evaluation mode."""

    def __init__(self, tables: Tables) -> None:
        self.tables = tables
        self._values: dict[bool, tuple[Tensor, ...] | None] = {True: None, False: None}
        self._cuts: dict[tuple[bool, str, torch.dtype, torch.device], Tensor] = {}
        self._change: Change | None = None
        self._handles = [self._hook(site) for site in tables.sites]

    def set(self, drawn: Tensor | None, mean: Tensor | None) -> None:
        """Set the values (S,) to multiply by from now on; None disables the gate."""
        widths = self.tables.layout.widths
        for training, values in ((True, drawn), (False, mean)):
            self._values[training] = None if values is None else values.detach().split(widths)
        self._cuts.clear()

    @contextmanager
    def changed(self, change: Change | None) -> Iterator[None]:
        """Apply another change to the outputs within the context."""
        before, self._change = self._change, change
        try:
            yield
        finally:
            self._change = before

    def by(self, values: Tensor) -> Change:
        """Multiply by values (S,) that receive gradients; the tables receive none."""
        parts = values.split(self.tables.layout.widths)

        def change(site: Site, output: Tensor) -> Tensor:
            factor = site.cut(parts).to(output.device)
            if output.dtype in HALF:  # the gradient sums many small values: sum in single precision
                return (output.detach().float() * factor).to(output.dtype)
            return output.detach() * factor.to(output.dtype)

        return change

    def remove(self) -> None:
        """Remove the hooks."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def _hook(self, site: Site) -> RemovableHandle:
        if any(isinstance(hook, _Hook) for hook in site.module._forward_hooks.values()):
            raise SettingsError(f"Table '{site.name}' already has a pruner. Call remove() on that pruner first.")
        return site.module.register_forward_hook(_Hook(self, site))

    def seen(self, site: Site, output: Tensor, training: bool) -> Tensor:
        """Return the output of a table as the model sees it."""
        if self._change is not None:
            return self._change(site, output)
        values = self._values[training]
        if values is None:
            return output
        key = (training, site.name, output.dtype, output.device)
        if key not in self._cuts:
            self._cuts[key] = site.cut(values).to(output.device, output.dtype)
        return output * self._cuts[key]


class _Hook:
    """A hook that a deep copy of the model shares, so that the gate is not copied."""

    def __init__(self, gating: Gating, site: Site) -> None:
        self._gating, self._site = gating, site

    def __call__(self, module: nn.Module, args: tuple[Any, ...], output: Tensor) -> Tensor:
        return self._gating.seen(self._site, output, module.training)

    def __deepcopy__(self, memo: dict[int, Any]) -> "_Hook":
        return self
