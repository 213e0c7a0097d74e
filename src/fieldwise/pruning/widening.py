"""Compact a model that is compact already: bring a copy back to the full width, then compact that copy."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import skip_init

from fieldwise.core.mask import Mask
from fieldwise.core.schema import Field, Layout, Schema
from fieldwise.pruning.compacting import Report, compact
from fieldwise.pruning.copying import copied
from fieldwise.pruning.example import Example
from fieldwise.pruning.gating import Gating
from fieldwise.pruning.narrow import NarrowFields, NarrowTable, NoTable, shallow, zeros_of
from fieldwise.pruning.narrow_layers import NARROW, NarrowConv, NarrowLinear, NarrowNorm
from fieldwise.pruning.sites import Site, Tables
from fieldwise.tables.embedding import FieldEmbedding


def compact_again(model: nn.Module, tables: Tables, mask: Mask, example: Example) -> tuple[nn.Module, Report]:
    """Return a compact model of a model, which may be compact itself, and a report.

    The narrow modules of the result refer to the full width, so that `describe` and `rebuild` work for it too.
    """
    wide = widened(model) if any(isinstance(module, NARROW) for module in model.modules()) else model
    gating, total = _on_full_width(model, wide, tables, mask)
    try:
        return compact(wide, gating, total, example, inplace=False)
    finally:
        gating.remove()


def _on_full_width(model: nn.Module, wide: nn.Module, tables: Tables, mask: Mask) -> tuple[Gating, Mask]:
    """Return the gate and the mask of the wide copy: dropped columns count as dropped again."""
    paths = {id(module): path for path, module in model.named_modules()}
    fields, widths, kept = list(mask.full.schema.fields), list(mask.full.widths), list(mask.kept)
    sites = []
    for site in tables.sites:
        path = paths[id(site.module)]
        outer = model.get_submodule(path.rpartition(".")[0])
        if isinstance(outer, NarrowTable | NarrowFields):
            path = path.rpartition(".")[0]
            for j, (width, live) in zip(site.fields, _columns(outer), strict=True):
                widths[j], kept[j] = width, tuple(live[k] for k in mask.kept[j])
        sites.append(Site(path, wide.get_submodule(path), site.fields))
    for path in [path for path, module in model.named_modules() if isinstance(module, NoTable)]:
        table: Any = wide.get_submodule(path)
        own = table.layout.widths if isinstance(table, FieldEmbedding) else (table.embedding_dim,)
        sites.append(Site(path, table, tuple(range(len(fields), len(fields) + len(own)))))
        fields += [Field(f"{path}, column group {k}", 1) for k in range(len(own))]
        widths += own
        kept += [()] * len(own)
    full = Layout(Schema(tuple(fields)), tuple(widths))
    return Gating(Tables(full, tuple(sites), ())), Mask(full, tuple(kept))


def _columns(outer: NarrowTable | NarrowFields) -> list[tuple[int, list[int]]]:
    """Return the full width of each field, and its columns that are still there."""
    live = outer.scatter.live
    if isinstance(outer, NarrowTable):
        return [(outer.embedding_dim, live)]
    starts, widths = outer.layout.starts, outer.layout.widths
    return [
        (width, [k - start for k in live if start <= k < start + width])
        for start, width in zip(starts, widths, strict=False)
    ]


def widened(small: nn.Module) -> nn.Module:
    """Return a copy of the full width: dropped columns and features are zeros."""
    shared: dict[int, nn.Parameter] = {}
    return copied(small, {m: _wide(m, shared) for m in small.modules() if isinstance(m, NARROW)}, {})


def _wide(module: nn.Module, shared: dict[int, nn.Parameter]) -> nn.Module:
    match module:
        case NarrowTable():
            new: Any = shallow(module.table)
            own = module.table.get_parameter("weight")
            if id(own) not in shared:
                full = own.detach().new_zeros(own.shape[0], module.embedding_dim)
                full[:, module.scatter.live] = own.detach()
                shared[id(own)] = nn.Parameter(full, requires_grad=own.requires_grad)
            new.weight, new.embedding_dim = shared[id(own)], module.embedding_dim
        case NarrowFields():
            new = _fields(module)
        case NoTable():
            new = module.full_of_zeros()
        case NarrowLinear():
            own = module.weight
            sizes = {"in_features": module.in_features, "out_features": module.out_features}
            new = skip_init(nn.Linear, **sizes, bias=module.bias is not None, device=str(own.device), dtype=own.dtype)
            new.weight = _spread(own, (module.scatter.live, module.gather.live), tuple(sizes.values())[::-1])
            if module.bias is not None:
                new.bias = _spread(module.bias, (module.scatter.live,), (module.out_features,))
        case NarrowConv():
            new = shallow(module.layer)
            ends = (module.scatter.live, module.gather.live)
            new.weight = _spread(module.layer.weight, ends, (module.scatter.size, module.gather.size))
            if module.layer.bias is not None:
                new.bias = _spread(module.layer.bias, ends[:1], (module.scatter.size,))
            new.in_channels, new.out_channels = module.gather.size, module.scatter.size
        case _:
            assert isinstance(module, NarrowNorm)
            new = _norm(module)
    new.train(module.training)
    assert isinstance(new, nn.Module)
    return new


def _spread(weight: Tensor, ends: tuple[Sequence[int], ...], sizes: tuple[int, ...]) -> nn.Parameter:
    """Return a weight whose first axes have the full sizes, with zeros at dead places."""
    full = weight.detach()
    for axis, (live, size) in enumerate(zip(ends, sizes, strict=True)):
        shape = list(full.shape)
        shape[axis] = size
        full = full.new_zeros(shape).index_copy(axis, torch.tensor(live, device=full.device), full)
    return nn.Parameter(full, requires_grad=weight.requires_grad)


def _norm(module: NarrowNorm) -> Any:
    """Return a batch normalization of all features; dead ones have weight and statistics that give zeros."""
    new, live, size = shallow(module.layer), module.scatter.live, module.scatter.size
    for name, weight in module.layer.named_parameters(recurse=False):
        setattr(new, name, _spread(weight, (live,), (size,)))
    for name, buffer in module.layer.named_buffers(recurse=False):
        if buffer.dim():
            full = torch.full((size,), float(name == "running_var"), dtype=buffer.dtype, device=buffer.device)
            full[live] = buffer
            new._buffers[name] = full
    new.num_features = size
    return new


def _fields(module: NarrowFields) -> FieldEmbedding:
    new = zeros_of(module.layout).to(next(module.table.parameters()).device)
    with torch.no_grad():
        for j, (_, live) in enumerate(_columns(module)):
            if live:
                new.table(j)[:, live] = module.table.table(j)
    return new
