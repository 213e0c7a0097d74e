"""Find the constant inputs and the unused outputs of each layer once columns are dropped.

The result must depend on the structure of the model, not on its current weights. So each draw uses random weights and
noise as table outputs, and replaces functions with flat parts (ReLU, sigmoid) by smooth ones. An input is constant if
it is equal in all rows of all draws. An output is dead if its gradient is exactly 0. The example itself may cause
either, such as a sequence with padding in every row, so features that are constant or dead with all columns present do
not count.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from fieldwise.pruning.example import Example, floats
from fieldwise.pruning.gating import Gating
from fieldwise.pruning.narrow_layers import Conv, Norm
from fieldwise.pruning.sites import Site, Table
from fieldwise.tables.embedding import FieldEmbedding

DRAWS = 4
_KINKED = {
    functional.relu, functional.relu_, functional.relu6, functional.leaky_relu, functional.leaky_relu_,
    functional.prelu, functional.rrelu, functional.hardtanh, functional.hardsigmoid, functional.hardswish,
    functional.threshold, functional.hardshrink, functional.softshrink, functional.elu, functional.elu_,
    functional.celu, functional.selu,
    torch.relu, torch.relu_, torch.clamp, torch.clip, torch.clamp_min, torch.clamp_max, torch.prelu,
    torch.Tensor.relu, torch.Tensor.relu_, torch.Tensor.clamp, torch.Tensor.clamp_, torch.Tensor.clamp_min,
    torch.Tensor.clamp_max, torch.Tensor.clip, torch.Tensor.prelu,
    torch.sigmoid, torch.Tensor.sigmoid, functional.sigmoid, torch.tanh, torch.Tensor.tanh, functional.tanh,
    functional.silu, functional.gelu, functional.softplus, functional.mish, functional.logsigmoid, torch.exp,
    torch.Tensor.exp,
}  # fmt: skip


class Smooth(TorchFunctionMode):
    """Replaces functions with flat parts by strictly monotonic ones with the same value at 0."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call the function, or its smooth replacement."""
        kwargs = kwargs or {}
        if function in _KINKED:
            x = args[0] if args else kwargs.get("input")
            if isinstance(x, Tensor) and x.is_floating_point():
                rest = {name: value for name, value in kwargs.items() if name not in ("input", "inplace")}
                at_zero = function(torch.zeros_like(x), *args[1:], **rest)
                return at_zero + x + x.sin() / 2  # its slope is never 0, even for large inputs
        return function(*args, **kwargs)


def axis_of(layer: nn.Module) -> int:
    """Return the feature axis of a layer."""
    if isinstance(layer, Norm):
        return 1
    return 1 - layer.weight.dim() if isinstance(layer, Conv) else -1


@dataclass
class Seen:
    """Result of the draws for one layer."""

    constant: Tensor
    """Constant inputs, boolean (features,)."""
    dead: Tensor
    """Outputs whose gradient is 0, boolean (features,)."""

    def beyond(self, other: "Seen") -> "Seen":
        """Return the features that are constant or dead here but not in the other result."""
        return Seen(self.constant & ~other.constant, self.dead & ~other.dead)


Dropped = dict[str, Tensor]
"""Maps a layer's name to its inputs that are already removed, boolean (features,)."""


class Probe:
    """Runs random draws of one model on one example."""

    def __init__(self, model: nn.Module, gating: Gating, example: Example, layers: dict[str, nn.Module]) -> None:
        self._model, self._gating, self._example, self._layers = model, gating, example, layers
        self._random = torch.Generator().manual_seed(1)
        self._dtype = torch.float64

    def look(self, live: Tensor, dropped: Dropped) -> dict[str, Seen]:
        """Probe every layer that runs, with all columns 0 except the `live` ones (S,)."""
        try:
            return self._look(live, dropped)
        except (RuntimeError, TypeError):  # for a forward that creates single-precision tensors
            if self._dtype == torch.float32:
                raise
            self._dtype = torch.float32
            return self._look(live, dropped)

    def _look(self, live: Tensor, dropped: Dropped) -> dict[str, Seen]:
        found: dict[str, Seen] = {}
        for _ in range(DRAWS):
            for name, seen in self._draw(live, dropped).items():
                before = found.get(name, seen)
                found[name] = Seen(before.constant & seen.constant, before.dead & seen.dead)
        return found

    def _draw(self, live: Tensor, dropped: Dropped) -> dict[str, Seen]:
        first: dict[str, Tensor] = {}
        found: dict[str, Seen] = {}

        def watch(name: str, layer: nn.Module) -> Callable[..., Any]:
            axis = axis_of(layer)

            def hook(_: nn.Module, args: Any, kwargs: Any, output: Any) -> Any:
                given = args[0] if args else next(iter(kwargs.values()), None)
                if not isinstance(given, Tensor) or not given.is_floating_point() or given.dim() < 2:
                    return output
                rows = given.detach().movedim(axis, -1).flatten(0, -2)
                same = rows == first.setdefault(name, rows[:1].clone())
                whole = isinstance(output, Tensor) and output.dim() > 1  # else it has no features
                outs = output.shape[axis] if whole else 1
                seen = found.setdefault(
                    name,
                    Seen(
                        torch.ones(rows.shape[1], dtype=torch.bool, device=rows.device),
                        torch.ones(outs, dtype=torch.bool, device=rows.device),
                    ),
                )
                seen.constant &= same.all(0)
                if not whole or not output.requires_grad:
                    seen.dead &= False
                    return output
                output.register_hook(lambda grad: _note(seen, grad.movedim(axis, -1).flatten(0, -2)))
                return output.clone()  # a later in-place change must not affect the record

            return hook

        with ExitStack() as stack:
            for name, layer in self._layers.items():
                if name in dropped:
                    handle = layer.register_forward_pre_hook(_without(dropped[name], axis_of(layer)))
                    stack.callback(handle.remove)
                stack.callback(layer.register_forward_hook(watch(name, layer), with_kwargs=True).remove)
            stack.enter_context(self._noise(live))
            stack.enter_context(torch.enable_grad())
            stack.enter_context(Smooth())
            example = self._example.map(lambda t: t.to(self._dtype) if t.is_floating_point() else t)
            weights = self._weights()
            for _ in range(2):  # run twice, so that an example of one row also shows what is constant
                self._backward(functional_call(self._model, weights, example.args, dict(example.kwargs)))
        return found

    def _backward(self, given: Any) -> None:
        """Backpropagate a random weighted sum of all outputs."""
        outs = [out for out in floats(given, type(self._model).__name__) if out.requires_grad]
        terms = [(out.double() * self._randn(out.shape, out.device, torch.float64)).sum() for out in outs]
        if terms:
            torch.stack(terms).sum().backward()

    def _randn(self, shape: Any, device: torch.device, dtype: torch.dtype) -> Tensor:
        return torch.randn(shape, generator=self._random, dtype=torch.float64).to(device, dtype)

    def _weights(self) -> dict[str, Tensor]:
        """Return random values for all weights except the tables', scaled to keep activations near 1."""
        found: dict[str, Tensor] = {}
        tables = [module for module in self._model.modules() if isinstance(module, (Table, FieldEmbedding))]
        done = {id(weight) for table in tables for weight in table.parameters()}
        skipped = {id(inner) for table in tables for inner in table.modules()}
        for path, module in self._model.named_modules():
            if id(module) in skipped:
                continue
            prefix = f"{path}." if path else ""
            for name, weight in module.named_parameters(recurse=False):
                if id(weight) in done or not weight.is_floating_point():
                    continue
                done.add(id(weight))
                fan = weight.numel() // max(1, weight.shape[0]) if weight.dim() > 1 else 1
                drawn = self._randn(weight.shape, weight.device, self._dtype) / max(1, fan) ** 0.5
                found[prefix + name] = drawn.requires_grad_()
            for name, buffer in module.named_buffers(recurse=False):
                if not buffer.is_floating_point():
                    continue
                if name == "running_var":
                    value = self._randn(buffer.shape, buffer.device, self._dtype).square() + 0.5
                elif name == "running_mean":
                    value = self._randn(buffer.shape, buffer.device, self._dtype)
                else:
                    value = buffer.to(self._dtype)
                found[prefix + name] = value
        return found

    @contextmanager
    def _noise(self, live: Tensor) -> Iterator[None]:
        """Replace table outputs by noise that is 0 in columns that are not live."""
        parts = live.split(self._gating.tables.layout.widths)

        def change(site: Site, output: Tensor) -> Tensor:
            noise = self._randn(output.shape, output.device, self._dtype)
            return noise.mul_(site.cut(parts).to(output.device, self._dtype)).requires_grad_()

        def plain(*given: Any) -> Tensor:
            output: Tensor = given[-1]
            return self._randn(output.shape, output.device, self._dtype).requires_grad_()

        gated = {id(site.module) for site in self._gating.tables.sites}
        with ExitStack() as stack:
            for module in self._model.modules():
                if isinstance(module, (Table, FieldEmbedding)) and id(module) not in gated:
                    stack.callback(module.register_forward_hook(plain).remove)
            stack.enter_context(self._gating.changed(change))
            yield


def _note(seen: Seen, grads: Tensor) -> None:
    """Mark features that receive a gradient as not dead."""
    seen.dead &= (grads == 0).all(0)


def _without(dropped: Tensor, axis: int) -> Callable[[nn.Module, Any], Any]:
    """Return a hook that sets removed inputs of a layer to 0."""

    def hook(_: nn.Module, args: Any) -> Any:
        shape = [1] * args[0].dim()
        shape[axis] = -1
        return (args[0] * (~dropped).to(args[0].dtype).view(shape), *args[1:])

    return hook
