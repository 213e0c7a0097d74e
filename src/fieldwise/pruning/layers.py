"""Decide which dense layers can be narrowed, and build their replacements."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fieldwise.core.mask import Mask
from fieldwise.pruning.example import Example
from fieldwise.pruning.gating import Gating
from fieldwise.pruning.narrow_layers import Conv, NarrowConv, NarrowLinear, NarrowNorm, Norm
from fieldwise.pruning.probe import Dropped, Probe, Seen, axis_of
from fieldwise.pruning.sites import Site, Table

ROUNDS = 6
"""Maximum number of probe passes: dead inputs of a layer make outputs of earlier layers dead."""


@dataclass(frozen=True)
class Plan:
    """A layer, and the narrow module that may replace it."""

    name: str
    layer: nn.Module
    change: str
    build: Callable[[], nn.Module]


def dense_plans(model: nn.Module, gating: Gating, mask: Mask, example: Example) -> tuple[list[Plan], dict[str, str]]:
    """Return a plan for each layer with dead features, and the reasons why others keep their full width."""
    layers, refused = _layers(model)
    watched = {**layers, **{name: model.get_submodule(name) for name in refused}}
    probe = Probe(model, gating, example, watched)
    device = next(model.parameters()).device
    live = torch.from_numpy(mask.vector).to(device)
    usual = probe.look(torch.ones_like(live), {})
    values = _constants(model, gating, mask, example, layers)
    dropped: Dropped = {}
    found: dict[str, Seen] = {}
    for _ in range(ROUNDS):
        found = {name: seen.beyond(usual[name]) for name, seen in probe.look(live, dropped).items() if name in usual}
        before = sum(int(entry.sum()) for entry in dropped.values())
        for name, layer in layers.items():
            if name in found and not isinstance(layer, Norm):
                gone = found[name].constant & _droppable(layer, values[name])
                dropped[name] = gone | dropped.get(name, torch.zeros_like(gone))
        if sum(int(entry.sum()) for entry in dropped.values()) == before:
            break
    plans = [
        plan
        for name, layer in layers.items()
        if name in found and (plan := _plan(name, layer, dropped.get(name), found[name].dead, values[name]))
    ]
    whole = {name: why for name, why in refused.items() if name in found and bool(found[name].constant.any())}
    return plans, whole


def _layers(model: nn.Module) -> tuple[dict[str, nn.Module], dict[str, str]]:
    """Return the layers that can be narrowed, and the modules with weights that cannot."""
    holders: dict[int, int] = {}
    for module in model.modules():
        for weight in module.parameters(recurse=False):
            holders[id(weight)] = holders.get(id(weight), 0) + 1
    good: dict[str, nn.Module] = {}
    refused: dict[str, str] = {}
    tables = {id(inner) for module in model.modules() if isinstance(module, Table) for inner in module.modules()}
    for name, module in model.named_modules():
        lists = [inner for inner in module.children() if isinstance(inner, nn.ParameterList | nn.ParameterDict)]
        own = [weight for inner in (module, *lists) for weight in inner.parameters(recurse=False)]
        own = [weight for weight in own if weight.is_floating_point()]
        if not own or id(module) in tables or not name or isinstance(module, nn.ParameterList | nn.ParameterDict):
            continue
        kind = type(module)
        if kind not in (nn.Linear, nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.Conv1d, nn.Conv2d, nn.Conv3d):
            refused[name] = f"{kind.__name__} is not narrowed"
        elif any(holders[id(weight)] > 1 for weight in own):
            refused[name] = "its weight is tied to another module's"
        elif isinstance(module, Conv) and (module.groups != 1 or module.padding_mode != "zeros"):
            refused[name] = "a grouped convolution, or one whose padding is not zeros"
        elif module._forward_pre_hooks:
            refused[name] = "hooks compute its weight"
        elif isinstance(module, Norm) and module.running_mean is None:
            refused[name] = "batch normalization without running statistics"
        else:
            good[name] = module
    return good, refused


def _constants(
    model: nn.Module, gating: Gating, mask: Mask, example: Example, layers: dict[str, nn.Module]
) -> dict[str, Tensor]:
    """Return the first input row of each layer in the masked model; it holds the values of constant inputs."""
    found: dict[str, Tensor] = {}
    device = next(model.parameters()).device
    parts = torch.from_numpy(mask.vector).to(device).split(mask.full.widths)

    def change(site: Site, output: Tensor) -> Tensor:
        return output * site.cut(parts).to(output.device, output.dtype)

    def note(name: str) -> Callable[..., None]:
        def hook(layer: nn.Module, args: tuple[Tensor, ...]) -> None:
            if args:
                rows = args[0].detach().movedim(axis_of(layer), -1).flatten(0, -2)
                if name not in found and len(rows):
                    found[name] = rows[0].double()

        return hook

    handles = [layer.register_forward_pre_hook(note(name)) for name, layer in layers.items()]
    with gating.changed(change):
        example.run(model)
    for handle in handles:
        handle.remove()
    for name, layer in layers.items():
        if name not in found:
            size = layer.weight.shape[1] if isinstance(layer, nn.Linear | Conv) else 0
            found[name] = torch.zeros(size, dtype=torch.float64, device=device)
    return found


def _droppable(layer: nn.Module, values: Tensor) -> Tensor:
    """Return the constant inputs that can be removed; for a convolution, only zeros, which match its padding."""
    return values == 0 if isinstance(layer, Conv) else torch.isfinite(values)


def _plan(name: str, layer: nn.Module, dropped: Tensor | None, dead: Tensor, values: Tensor) -> Plan | None:
    outputs = (~dead).nonzero().squeeze(1).tolist()
    if isinstance(layer, Norm):
        if not dead.any() or not outputs:
            return None
        change = f"{layer.num_features} -> {len(outputs)} features"
        return Plan(name, layer, change, lambda: NarrowNorm(layer, outputs))
    assert isinstance(layer, nn.Linear | Conv)
    gone = torch.zeros(layer.weight.shape[1], dtype=torch.bool) if dropped is None else dropped
    inputs = (~gone).nonzero().squeeze(1).tolist()
    if not outputs or not inputs or (len(outputs), len(inputs)) == tuple(layer.weight.shape[:2]):
        return None
    change = f"{layer.weight.shape[1]} -> {len(inputs)} inputs, {layer.weight.shape[0]} -> {len(outputs)} outputs"
    if isinstance(layer, nn.Linear):
        return Plan(name, layer, change, lambda: _linear(layer, inputs, outputs, gone, values))
    return Plan(name, layer, change, lambda: NarrowConv(layer, inputs, outputs))


def _linear(layer: nn.Linear, inputs: list[int], outputs: list[int], gone: Tensor, values: Tensor) -> NarrowLinear:
    """Return a narrow layer whose bias includes the contribution of constant inputs."""
    added = layer.weight.detach().double()[outputs][:, gone] @ values[gone]
    before: Tensor | None = layer.bias
    small = NarrowLinear(layer, inputs, outputs, bool((added != 0).any()) or before is not None)
    if small.bias is not None:
        small.bias.data += added.to(small.bias.dtype)
    return small
