"""What a model's file holds, and a model built to hold no more than that."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn.modules import module as registry

from fieldwise.core.errors import RunError
from fieldwise.core.schema import Layout
from fieldwise.models.model import CTRModel, Model

Tensors = Mapping[str, Tensor]
PLACES: Final = 2**20
"""Ids that a row may have."""
_SPARE: Final = 1_000
"""Modules, weights and buffers that a model may have beside those that are stored."""
_BUFFERS: Final = 2**24
"""Numbers that a model may hold beside those that are stored, such as places."""


def build(settings: Model, layout: Layout, linear: Layout, stored: Tensors) -> CTRModel:
    """The model with the stored weights; refuses one that is not exactly that large, before memory is taken for it.

    It is first built on torch's meta device, where tensors have shapes and no numbers.
    """
    first_order = linear if settings.has_first_order() else None
    tables, numbers = layout.params + linear.params, sum(tensor.numel() for tensor in stored.values())
    if tables > numbers:
        raise RunError(f"Sizes of {tables} are claimed, {numbers} numbers are stored. Export it again.")
    if layout.schema.places > PLACES:
        raise RunError(f"A row of {layout.schema.places} ids is claimed. Allowed: {PLACES}. Export it again.")
    with torch.random.fork_rng(devices=[]):
        with torch.device("meta"), _at_most(8 * len(stored) + _SPARE):
            shape = settings.build(layout, first_order)
        _check_shapes(shape, stored, numbers)
        model = settings.build(layout, first_order)
    model.load_state_dict(stored)
    return model


def check_finite(tensors: Tensors) -> None:
    """Refuses weights that are NaN or infinite; one pass, and no memory of their size."""
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and tensor.numel():
            low, high = torch.aminmax(tensor.detach())
            if not (low.isfinite() and high.isfinite()):
                raise RunError(
                    f"The weights '{name}' hold numbers that are not finite, so predictions would be NaN. "
                    "Train again with a lower learning rate, and export that."
                )


def _check_shapes(shape: CTRModel, stored: Tensors, numbers: int) -> None:
    claimed = shape.state_dict()
    for name in (*claimed, *stored):
        if name not in stored or name not in claimed:
            raise RunError(f"Weights '{name}' are {'claimed' if name in claimed else 'stored'} alone. Export it again.")
        has, wants = stored[name], claimed[name]
        if has.shape != wants.shape or has.dtype != wants.dtype:
            raise RunError(
                f"Weights '{name}' of shape {tuple(wants.shape)}, {wants.dtype} are claimed, those stored are "
                f"{tuple(has.shape)}, {has.dtype}. Export it again."
            )
    beside = sum(buffer.numel() for buffer in shape.buffers())
    if beside > numbers + _BUFFERS:
        raise RunError(f"Buffers of {beside} numbers are claimed, {numbers} numbers are stored. Export it again.")


@contextmanager
def _at_most(count: int) -> Iterator[None]:
    """Ends the building of a model that has more parts; counted in this thread alone."""
    thread, left = threading.get_ident(), count

    def hook(*_: Any) -> None:
        nonlocal left
        left -= threading.get_ident() == thread
        if left < 0:
            raise RunError(f"More than {count} layers and weights are claimed, fewer are stored. Export it again.")

    with ExitStack() as stack:
        for register in (
            registry.register_module_parameter_registration_hook,
            registry.register_module_module_registration_hook,
            registry.register_module_buffer_registration_hook,
        ):
            stack.callback(register(hook).remove)
        yield
