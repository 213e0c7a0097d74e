"""Check how a model uses its tables on the example; skip tables whose weights it also reads directly."""

from typing import Any

import torch
from torch import Tensor, nn

from fieldwise.core.errors import SettingsError
from fieldwise.pruning.example import Example, evaluating
from fieldwise.pruning.sites import Site, Tables, without


def check_use(model: nn.Module, tables: Tables, example: Example) -> Tables:
    """Run the example once, and return the tables that can be pruned."""
    seen: set[int] = set()

    def hook_of(site: Site) -> Any:
        def hook(module: nn.Module, _: Any, output: Any) -> Any:
            width = sum(tables.layout.widths[j] for j in site.fields)
            if not isinstance(output, Tensor) or output.shape[-1] != width:
                raise SettingsError(
                    f"Table '{site.name}' ({type(module).__name__}) does not output {width} columns last. Exclude it."
                )
            seen.update(site.fields)
            return output.detach()

        return hook

    weights = {weight: weight.requires_grad for site in tables.sites for weight in site.module.parameters()}
    handles = [site.module.register_forward_hook(hook_of(site)) for site in tables.sites]
    kept = torch.random.get_rng_state()
    try:
        for weight in weights:
            weight.requires_grad_(weight.is_floating_point())
        with evaluating(model), torch.enable_grad():
            outs = [out.double().sum() for out in example.run(model) if out.requires_grad]
            total = torch.stack(outs).sum() if outs else None
            named = list(weights)
            direct = torch.autograd.grad(total, named, allow_unused=True) if total is not None else [None] * len(named)
    except SettingsError as error:
        if isinstance(error.__cause__, SettingsError):
            raise error.__cause__ from None
        raise
    finally:
        torch.random.set_rng_state(kept)
        for handle in handles:
            handle.remove()
        for weight, needed in weights.items():
            weight.requires_grad_(needed)
    read = {id(weight) for weight, grad in zip(named, direct, strict=True) if grad is not None}
    left = {
        j: "weights are also read directly"
        for site in tables.sites
        for j in site.fields
        if any(id(weight) in read for weight in site.module.parameters())
    }
    left |= {j: "not read by the example" for j in range(len(tables.layout.schema)) if j not in seen and j not in left}
    if len(left) == len(tables.layout.schema):
        raise SettingsError(
            f"No table of {type(model).__name__} can be pruned: {', '.join(sorted(set(left.values())))}. "
            "Give an example that reads them through their modules."
        )
    return without(tables, left) if left else tables
