"""Builds modules on torch's meta device, where tensors have shapes and no data."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

_DRAWS: Final = {
    getattr(Tensor, name)
    for name in ("bernoulli_", "cauchy_", "exponential_", "geometric_", "log_normal_", "normal_", "random_", "uniform_")
}


@contextmanager
def on_meta() -> Iterator[None]:
    """Creates tensors on the meta device. Random numbers are not drawn, since torch would import its compiler."""
    with torch.device("meta"), _NoDraws():
        yield


class _NoDraws(TorchFunctionMode):
    """Leaves tensors without data as they are instead of filling them with random numbers."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        given = kwargs or {}
        filled = args[0] if args else given.get("tensor")
        draws = func in _DRAWS or getattr(func, "__module__", None) == torch.nn.init.__name__
        return filled if draws and isinstance(filled, Tensor) and filled.is_meta else func(*args, **given)
