"""Builds a model from stored weights, and refuses metadata that asks for more than is stored."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn.modules import module as registry

from fieldwise.core.errors import RunError
from fieldwise.core.schema import Layout
from fieldwise.core.store import FLOAT32, Store
from fieldwise.exports.meta import on_meta
from fieldwise.models.model import HeadModel, OwnModel
from fieldwise.models.stored import StoredModel, check_fields

Tensors = Mapping[str, Tensor]
PLACES: Final = 2**20
"""Maximum number of ids per row."""
SPARE: Final = 1_000
"""Modules, weights and buffers that a model may have in addition to the stored ones."""
_BUFFERS: Final = 2**24
"""Numbers that a model may hold in buffers that are not stored, such as places."""


def build(
    settings: OwnModel, layout: Layout, linear: Layout, stored: Tensors, store: Store = FLOAT32
) -> HeadModel | StoredModel:
    """Returns the model with the stored weights; refuses any other size before allocating memory.

    The model is first built on torch's meta device, where tensors have shapes and no data. Tables in another store than
    float32 stay where they are: in the mapped file.
    """
    check_fields(store, layout.schema)
    first_order = linear if settings.has_first_order() else None
    numbers, there = (sum(each) for each in zip(*((t.numel(), t.nbytes) for t in stored.values()), strict=True))
    tables = store.bytes(layout) + store.bytes(linear)
    if tables > there:
        raise RunError(f"The tables need {tables} bytes, but {there} are stored. Export it again.")
    if layout.schema.places > PLACES:
        raise RunError(f"A row has {layout.schema.places} ids. Allowed: at most {PLACES}. Export it again.")
    with torch.random.fork_rng(devices=[]):
        with on_meta(), at_most(8 * len(stored) + SPARE):
            shape = _new(settings, layout, first_order, store)
        _check_shapes(shape, stored, numbers)
        model = _new(settings, layout, first_order, store)
    model.load_state_dict(stored, assign=isinstance(model, StoredModel))
    return model


def _new(settings: OwnModel, layout: Layout, linear: Layout | None, store: Store) -> HeadModel | StoredModel:
    if store == FLOAT32:
        return settings.build(layout, linear)
    return StoredModel(settings, layout, linear, store)


def check_finite(tensors: Tensors) -> None:
    """Refuses weights that are NaN or infinite, in one pass and without a copy."""
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and tensor.numel():
            low, high = torch.aminmax(tensor.detach())
            if not (low.isfinite() and high.isfinite()):
                raise RunError(
                    f"The weights '{name}' contain NaN or infinite numbers, so predictions would be NaN. "
                    "Train again with a lower learning rate, then export again."
                )


def _check_shapes(shape: HeadModel | StoredModel, stored: Tensors, numbers: int) -> None:
    claimed = shape.state_dict()
    for name in (*claimed, *stored):
        if name not in stored or name not in claimed:
            where = "missing from the file" if name in claimed else "not part of the model"
            raise RunError(f"Weights '{name}' are {where}. Export it again.")
        has, wants = stored[name], claimed[name]
        if has.shape != wants.shape or has.dtype != wants.dtype:
            raise RunError(
                f"Weights '{name}' should have shape {tuple(wants.shape)} and type {wants.dtype}, but the stored ones "
                f"have {tuple(has.shape)} and {has.dtype}. Export it again."
            )
    buffers = sum(buffer.numel() for buffer in shape.buffers())
    if buffers > numbers + _BUFFERS:
        raise RunError(f"The buffers need {buffers} numbers, but {numbers} numbers are stored. Export it again.")


@contextmanager
def at_most(count: int) -> Iterator[None]:
    """Raises once a model registers more than `count` parts; counts only this thread."""
    thread, left = threading.get_ident(), count

    def hook(*_: Any) -> None:
        nonlocal left
        left -= threading.get_ident() == thread
        if left < 0:
            raise RunError(f"The model has more than {count} parts, but fewer are stored. Export it again.")

    with ExitStack() as stack:
        for register in (
            registry.register_module_parameter_registration_hook,
            registry.register_module_module_registration_hook,
            registry.register_module_buffer_registration_hook,
        ):
            stack.callback(register(hook).remove)
        yield
