"""One call of a model, and its outputs."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from fieldwise.core.errors import SettingsError


@dataclass(frozen=True)
class Example:
    """Arguments for a model's forward."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, given: Any, kwargs: Mapping[str, Any] | None) -> "Example":
        """Build from a tuple of positional arguments, or from a single argument."""
        return cls(given if isinstance(given, tuple) else (given,), kwargs or {})

    @property
    def tensors(self) -> list[Tensor]:
        """Return every tensor in the arguments."""
        return [leaf for leaf in pytree.tree_leaves((self.args, dict(self.kwargs))) if isinstance(leaf, Tensor)]

    def map(self, change: Any) -> "Example":
        """Return the same call with a function applied to every tensor."""
        args, kwargs = pytree.tree_map_only(Tensor, change, (self.args, dict(self.kwargs)))
        return Example(args, kwargs)

    def check_device(self, model: nn.Module) -> None:
        """Raise an error if the example and the model are on different devices."""
        homes = {weight.device for weight in model.parameters()}
        if torch.device("meta") in homes:
            raise SettingsError(
                f"{type(model).__name__} is on the meta device, which has no values. Load its weights first."
            )
        for tensor in self.tensors:
            if tensor.device not in homes:
                there = ", ".join(sorted(map(str, homes)))
                raise SettingsError(
                    f"The example is on {tensor.device}, the model on {there}. Move one of them with .to()."
                )

    def run(self, model: nn.Module) -> list[Tensor]:
        """Return the float tensors that the model outputs; a failing forward becomes a one-line error."""
        try:
            given = model(*self.args, **self.kwargs)
        except Exception as error:
            line = (str(error).strip().splitlines() or [""])[0]
            raise SettingsError(
                f"The example does not fit {type(model).__name__}: forward raised {type(error).__name__} "
                f"({line[:200]}). Give `example` as a tuple of forward's arguments."
            ) from error
        return floats(given, type(model).__name__)

    def compared(self, model: nn.Module) -> list[Tensor]:
        """Return the outputs before a final sigmoid, whose flat ends would hide differences."""
        with Sigmoids() as sigmoids:
            outs = self.run(model)
        return [sigmoids.argument(out) for out in outs]


class Sigmoids(TorchFunctionMode):
    """Records the input of every sigmoid."""

    def __init__(self) -> None:
        super().__init__()
        self._seen: dict[int, tuple[Tensor, Tensor]] = {}

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call the function and record the input of a sigmoid."""
        out = function(*args, **(kwargs or {}))
        if function in (torch.sigmoid, Tensor.sigmoid, functional.sigmoid) and args:
            self._seen[out.data_ptr()] = (out, args[0])  # keeping the output alive prevents reuse of its id
        return out

    def argument(self, out: Tensor) -> Tensor:
        """Return the sigmoid's input if a sigmoid computed the output, else the output itself."""
        _, before = self._seen.get(out.data_ptr(), (out, out))
        return before if before.numel() == out.numel() else out


def floats(given: Any, name: str) -> list[Tensor]:
    """Return the float tensors of an output: a tensor, or a tuple, list or dict of tensors."""
    found = [leaf for leaf in pytree.tree_leaves(given) if isinstance(leaf, Tensor) and leaf.is_floating_point()]
    if not found:
        raise SettingsError(
            f"forward of {name} returned {type(given).__name__} without a float tensor. "
            "Allowed: a tensor, or a tuple, list or dict of them. Wrap the model in one that returns tensors."
        )
    return found


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Put the model in evaluation mode, and restore the flag of each module afterwards."""
    flags = [(module, module.training) for module in model.modules()]
    for module, _ in flags:
        # cuDNN has no backward for recurrent layers in evaluation mode; without dropout both modes are equal
        module.training = isinstance(module, nn.RNNBase) and module.dropout == 0 and module.training
    try:
        yield
    finally:
        for module, training in flags:
            module.training = training


class Randomness:
    """A private random stream; each use restores the global random state of torch."""

    def __init__(self, seed: int, device: torch.device) -> None:
        self._device = device if device.type == "cuda" else None
        self._states: list[Tensor] | None = None
        with self._borrowed():
            torch.default_generator.manual_seed(seed)
            if self._device is not None:
                with torch.cuda.device(self._device):
                    torch.cuda.manual_seed(seed)

    @contextmanager
    def _borrowed(self) -> Iterator[None]:
        devices = [] if self._device is None else [self._device]
        with torch.random.fork_rng(devices=devices):
            if self._states is not None:
                self.set(self._states)
            yield
            self._states = [torch.get_rng_state()]
            if self._device is not None:
                self._states.append(torch.cuda.get_rng_state(self._device))

    __call__ = _borrowed

    def set(self, states: list[Tensor]) -> None:
        """Set the global random state of torch to the state of this stream."""
        torch.set_rng_state(states[0])
        if self._device is not None and len(states) > 1:
            torch.cuda.set_rng_state(states[1], self._device)

    def state(self) -> list[Tensor]:
        """Return the state of the stream."""
        return [] if self._states is None else [state.cpu() for state in self._states]

    def restore(self, states: list[Tensor]) -> None:
        """Resume from a stored state."""
        self._states = [state.cpu() for state in states]
