"""Compare a compact model with the masked model: on the example, and on shuffled and scaled table outputs."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

import torch
from torch import Tensor, nn

from fieldwise.core.mask import Mask
from fieldwise.pruning.example import Example, Randomness, evaluating
from fieldwise.pruning.gating import Gating
from fieldwise.pruning.sites import Site

DRAWS: Final = 3
"""Number of comparisons in addition to the example itself."""
TOLERANCE: Final = {torch.float64: 1e-11, torch.float32: 1e-5, torch.float16: 2e-2, torch.bfloat16: 1e-1}
"""Largest difference that rounding can explain, relative to the scale of the outputs."""
Swaps = Mapping[Site, nn.Module]
"""The narrow table that replaces each table."""


class Comparison:
    """The outputs of the masked model in every draw."""

    def __init__(self, model: nn.Module, gating: Gating, mask: Mask, example: Example) -> None:
        self._example = example
        self._expected = [_outputs(model, gating, mask, example, draw) for draw in range(DRAWS + 1)]

    @property
    def tolerance(self) -> float:
        """Return the largest difference that rounding can explain."""
        return max(TOLERANCE.get(out.dtype, 1e-5) for outs in self._expected for out in outs)

    def difference(self, small: nn.Module, swaps: Swaps) -> float:
        """Return the largest difference of a compact model, relative to the scale of the outputs."""
        worst = 0.0
        with evaluating(small), torch.no_grad():
            for draw, wanted in enumerate(self._expected):
                with _shaken(small, swaps, _Shake(draw)), Randomness(draw, wanted[0].device)():
                    given = self._example.compared(small)
                for got, want in zip(given, wanted, strict=True):
                    worst = max(worst, _gap(got, want))
        return worst


def _gap(got: Tensor, want: Tensor) -> float:
    """Return the largest difference of an output, relative to its scale."""
    if not want.numel():
        return 0.0
    scale = max(want.abs().max().item(), torch.finfo(want.dtype).tiny)
    gap = (got.double() - want.double()).abs().nan_to_num(0.0 if bool(want.isnan().any()) else torch.inf)
    return float(gap.max().item() / scale)


def _outputs(model: nn.Module, gating: Gating, mask: Mask, example: Example, draw: int) -> list[Tensor]:
    """Outputs of the masked model in one comparison."""
    device = next(model.parameters()).device
    parts = torch.from_numpy(mask.vector).to(device).split(mask.full.widths)
    shake = _Shake(draw)

    def change(site: Site, output: Tensor) -> Tensor:
        return shake(site, output) * site.cut(parts).to(output.device, output.dtype)

    with Randomness(draw, device)(), gating.changed(change):
        return [out.clone() for out in example.compared(model)]


class _Shake:
    """Shuffle and scale the rows of a table's output, deterministically for each draw."""

    def __init__(self, draw: int) -> None:
        self._draw = draw
        self._random = torch.Generator().manual_seed(draw)

    def __call__(self, site: Site, output: Tensor) -> Tensor:
        """Return the example's own values for draw 0, perturbed values otherwise."""
        if not self._draw:
            return output
        order = torch.randperm(output.shape[0], generator=self._random)
        scales = torch.rand(output.shape[0], generator=self._random) + 0.5
        shape = (-1, *[1] * (output.dim() - 1))
        return output[order.to(output.device)] * scales.to(output.device, output.dtype).view(shape)


@contextmanager
def _shaken(small: nn.Module, swaps: Swaps, shake: _Shake) -> Iterator[None]:
    """Perturb the outputs of the narrow tables like those of the masked model."""

    def hook_of(site: Site) -> Callable[..., Tensor]:
        return lambda *given: shake(site, given[-1])

    inside = set(small.modules())
    sites = {new: site for site, new in swaps.items()}
    handles = [new.register_forward_hook(hook_of(site)) for new, site in sites.items() if new in inside]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
