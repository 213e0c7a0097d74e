"""A user's module as a model: hooks gate its tables, and narrow modules replace what a mask removes."""

import copy
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from fieldwise.core.errors import MaskError, SettingsError
from fieldwise.core.mask import Mask
from fieldwise.core.records import Size
from fieldwise.core.schema import Layout
from fieldwise.models.model import CTRModel
from fieldwise.pruning.copying import copied
from fieldwise.pruning.example import Example, evaluating
from fieldwise.pruning.gating import Change, Gating
from fieldwise.pruning.inside import Inside, draws, needs_of
from fieldwise.pruning.narrow import NarrowFields, NarrowTable, NoTable
from fieldwise.pruning.sites import Site, Tables
from fieldwise.pruning.widening import compact_again
from fieldwise.tables.embedding import FieldEmbedding

if TYPE_CHECKING:
    from fieldwise.models.factory import Factory


class FactoryModel(CTRModel):
    """A module of a factory, full or compact."""

    settings: "Factory"

    def __init__(
        self, settings: "Factory", inside: Inside, module: nn.Module, needs: tuple[str, ...] | None = None
    ) -> None:
        super().__init__()
        self.settings, self.inside, self.schema = settings, inside, inside.schema
        self.module = module
        self.mask = mask_of(module, inside)
        """The columns of the full module that are left."""
        self.layout = self.mask.layout
        self._needs = needs_of(module, inside) if needs is None else needs

    def forward(self, ids: Tensor, gate: Tensor | None = None) -> Tensor:
        """Logits (B,) of ids (B, places); a gate or mask (S,) multiplies the columns."""
        if gate is None:
            return self.inside.logits(self.module, ids)
        parts = gate.split(self.layout.widths)
        return self._changed(ids, lambda site, out: out * site.cut(parts).to(out.device, out.dtype))

    def gated(self, ids: Tensor, gate: Tensor) -> Tensor:
        """Logits (B,) with a gradient only for the gate (S,)."""
        gating = Gating(self._found)
        try:
            with gating.changed(gating.by(gate)):
                return self.inside.logits(self.module, ids)
        finally:
            gating.remove()

    def slopes(self, ids: Tensor, loss: Callable[[Tensor], Tensor], masks: Tensor) -> Tensor:
        """Each row's derivative of the loss of the logits by every column's mask, at these masks (S,); (B, S)."""
        leaves: list[tuple[Site, Tensor, Tensor]] = []
        parts = masks.split(self.layout.widths)

        def change(site: Site, output: Tensor) -> Tensor:
            output = output.detach()
            leaf = (output * site.cut(parts).to(output.device, output.dtype)).requires_grad_()
            leaves.append((site, output, leaf))
            return leaf

        with torch.enable_grad():
            value = loss(self._changed(ids, change))
            grads = torch.autograd.grad(value, [leaf for _, _, leaf in leaves], allow_unused=True)
        widths = self.layout.widths
        found = [ids.new_zeros(len(ids), width, dtype=value.dtype) for width in widths]
        for (site, output, _), grad in zip(leaves, grads, strict=True):
            if grad is not None:
                slope = _by_row(grad * output, len(ids)).split([widths[j] for j in site.fields], 1)
                for j, part in zip(site.fields, slope, strict=True):
                    found[j] += part
        return torch.cat(found, 1)

    def _changed(self, ids: Tensor, change: Change) -> Tensor:
        gating = Gating(self._found)
        try:
            with gating.changed(change):
                return self.inside.logits(self.module, ids)
        finally:
            gating.remove()

    @property
    def embedding(self) -> "TablesOfModule":
        """The tables."""
        return TablesOfModule(self._found)

    @property
    def _found(self) -> Tables:
        """The tables as they are now: those inside narrow modules, without those that keep no column."""
        sites = []
        for path, fields in self.inside.places:
            module = self.module.get_submodule(path)
            if not isinstance(module, NoTable):
                inner = module.table if isinstance(module, NarrowTable | NarrowFields) else module
                sites.append(Site(path, inner, fields))
        return Tables(self.layout, tuple(sites), ())

    @property
    def needs(self) -> tuple[str, ...]:
        """Fields that a prediction reads; ids of all others are ignored."""
        return self._needs

    def size(self) -> Size:
        """The number of weights, by part of the model; tables of width 1 are first-order weights."""
        everything, first = sum(weight.numel() for weight in self.parameters()), self.inside.first_order
        return Size(
            columns=self.layout.columns,
            embedding=self.layout.params,
            first_order=first,
            dense=everything - first - self.layout.params,
        )

    def check_device(self) -> None:
        """Refuse a module that cannot be called on the device of its weights, in one line."""
        device = next(self.module.parameters()).device
        if device.type == "cpu":
            return  # called there when its tables were found
        try:
            with torch.no_grad(), evaluating(self):
                self(next(draws(self.schema, rows=2)).to(device))
        except Exception as error:  # a user's forward may raise anything
            line = (str(error).strip().splitlines() or [""])[0][:200].removesuffix(".")
            raise SettingsError(
                f"[model] forward of {type(self.module).__name__} works on the CPU, but on {device} it raised "
                f"{type(error).__name__}: {line}. Tensors that are plain attributes do not move with a module: use "
                "register_buffer."
            ) from error

    def narrowed(self, mask: Mask) -> "FactoryModel":
        """A compact model that predicts what the masked model predicts."""
        device = next(self.module.parameters()).device
        ids = next(draws(self.schema)).to(device)
        small, _ = compact_again(self.module, self._found, mask, Example((self.inside.inputs(ids),)))
        return FactoryModel(self.settings, self.inside, small)

    def __deepcopy__(self, memo: dict[int, Any]) -> "FactoryModel":
        twin = self.__class__.__new__(self.__class__)
        nn.Module.__init__(twin)
        memo[id(self)] = twin
        own = {name: value for name, value in self.__dict__.items() if name not in nn.Module().__dict__}
        twin.__dict__.update(copy.copy(own))
        twin.module = copied(self.module, {}, {})
        twin.training = self.training
        return twin


def mask_of(module: nn.Module, inside: Inside) -> Mask:
    """The columns of the full tables that a module, full or compact, still has."""
    widths, kept = list(inside.layout.widths), [tuple(range(width)) for width in inside.layout.widths]
    for path, fields in inside.places:
        found = module.get_submodule(path)
        if isinstance(found, NoTable):
            for j in fields:
                kept[j] = ()
        elif isinstance(found, NarrowTable):
            kept[fields[0]] = tuple(found.scatter.live)
        elif isinstance(found, NarrowFields):
            for j, start in zip(fields, found.layout.starts, strict=False):
                own = [k - start for k in found.scatter.live]
                kept[j] = tuple(k for k in own if 0 <= k < widths[j])
    return Mask(inside.layout, tuple(kept))


def _by_row(values: Tensor, rows: int) -> Tensor:
    """Values of a table's output (.., width) by row of the batch, (rows, width): summed over a row's places.

    An output whose first axis is not that of the batch has its rows in the batch's order, or is shared evenly.
    """
    flat = values.flatten(0, -2) if values.dim() > 1 else values[None]
    if len(flat) % rows == 0:
        summed: Tensor = flat.unflatten(0, (rows, -1)).sum(1)
        return summed
    return flat.sum(0, keepdim=True).expand(rows, -1) / rows


class TablesOfModule:
    """The tables of a module, by field."""

    def __init__(self, found: Tables) -> None:
        self._found = found

    @property
    def layout(self) -> Layout:
        """The fields and their widths."""
        return self._found.layout

    def span(self, field: int) -> tuple[nn.Parameter, slice]:
        """The weight that contains one field, and the field's rows in it."""
        site = next((site for site in self._found.sites if field in site.fields), None)
        if site is None:
            raise MaskError(f"Field '{self.layout.schema.names[field]}' has no table.")
        if isinstance(site.module, FieldEmbedding):
            return site.module.span(site.fields.index(field))
        weight = site.module.get_parameter("weight")
        return weight, slice(0, len(weight))

    def table(self, field: int) -> Tensor:
        """The table of one field, (cardinality, width)."""
        weight, rows = self.span(field)
        return weight[rows]

    def parameters(self) -> Iterator[nn.Parameter]:
        """All weights."""
        for site in self._found.sites:
            yield from site.module.parameters()
