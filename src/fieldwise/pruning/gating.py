"""Forward hooks that multiply what tables give by one number per column."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from fieldwise.core.errors import SettingsError
from fieldwise.pruning.sites import Site, Tables

Change = Callable[[Site, Tensor], Tensor]
"""From a site and its output to what the model sees instead."""
HALF = (torch.float16, torch.bfloat16)


class Gating:
    """The gate of a model: `drawn` acts on modules that train, `mean` on modules that are evaluated."""

    def __init__(self, tables: Tables) -> None:
        self.tables = tables
        self._values: dict[bool, tuple[Tensor, ...] | None] = {True: None, False: None}
        self._cuts: dict[tuple[bool, str, torch.dtype, torch.device], Tensor] = {}
        self._change: Change | None = None
        self._handles = [self._hook(site) for site in tables.sites]

    def set(self, drawn: Tensor | None, mean: Tensor | None) -> None:
        """Values (S,) from now on; None lets everything through."""
        widths = self.tables.layout.widths
        for training, values in ((True, drawn), (False, mean)):
            self._values[training] = None if values is None else values.detach().split(widths)
        self._cuts.clear()

    @contextmanager
    def changed(self, change: Change | None) -> Iterator[None]:
        """Another change of the outputs meanwhile."""
        before, self._change = self._change, change
        try:
            yield
        finally:
            self._change = before

    def by(self, values: Tensor) -> Change:
        """Multiplies by values (S,) through which gradients flow; the tables get none."""
        parts = values.split(self.tables.layout.widths)

        def change(site: Site, output: Tensor) -> Tensor:
            factor = site.cut(parts).to(output.device)
            if output.dtype in HALF:  # sums of many small numbers: the gradient is summed in single precision
                return (output.detach().float() * factor).to(output.dtype)
            return output.detach() * factor.to(output.dtype)

        return change

    def remove(self) -> None:
        """Takes the hooks off."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def _hook(self, site: Site) -> RemovableHandle:
        if any(isinstance(hook, _Hook) for hook in site.module._forward_hooks.values()):
            raise SettingsError(f"Table '{site.name}' has a pruner already. Call remove() on that one first.")
        return site.module.register_forward_hook(_Hook(self, site))

    def seen(self, site: Site, output: Tensor, training: bool) -> Tensor:
        """What the model sees of a table's output."""
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
    """A hook that a copy of the model shares with the model, instead of copying gate and all."""

    def __init__(self, gating: Gating, site: Site) -> None:
        self._gating, self._site = gating, site

    def __call__(self, module: nn.Module, args: tuple[Any, ...], output: Tensor) -> Tensor:
        return self._gating.seen(self._site, output, module.training)

    def __deepcopy__(self, memo: dict[int, Any]) -> "_Hook":
        return self
