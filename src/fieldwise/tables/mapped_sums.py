"""A forward pass of FM and DeepFM for a GPU: one kernel reads the rows of all fields, maps and sums them."""

from typing import Any, Final, cast

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from fieldwise.kernels.available import has_all_kernels, has_kernels
from fieldwise.tables import deterministic_sum
from fieldwise.tables.embedding import FieldEmbedding
from fieldwise.tables.lookup import Found
from fieldwise.tables.summed import Forward, HeadOverTables, SummedHead

WIDEST: Final = 64
"""Largest width of tables and maps that the kernel for a GPU takes."""


def is_mapped_on_gpu(model: object) -> bool:
    """Whether one kernel can read the rows of this model and sum their maps."""
    embedding = getattr(model, "embedding", None)
    head = getattr(model, "head", None)
    if not (isinstance(head, SummedHead) and isinstance(embedding, FieldEmbedding)):
        return False
    if not embedding.groups or max(embedding.layout.schema.lengths) > 1 or embedding.layout.shared is not None:
        return False
    device = next(embedding.parameters()).device
    if not (has_kernels(device) if head.only_pairs else has_all_kernels(device)):
        return False
    return max(*embedding.groups, *(head.maps(fields).shape[2] for fields in embedding.groups.values())) <= WIDEST


def mapped_on_gpu(model: nn.Module) -> Forward:
    """A forward pass whose kernel reads rows and sums their maps, for FM and DeepFM on a GPU."""
    given = cast(HeadOverTables, model)
    head, embedding, first_order = given.head, given.embedding, given.first_order
    assert isinstance(head, SummedHead)
    widths, columns = embedding.layout.widths, embedding.layout.columns

    one = len(embedding.groups) == 1 and head.only_pairs
    everywhere = first_order is None or list(first_order.groups.values()) == list(embedding.groups.values())

    def logits(ids: Tensor, gate: Tensor | None = None) -> Tensor:
        if embedding.rounding is not None:
            return given(ids, gate)
        read = [(embedding.find(ids, width), fields) for width, fields in embedding.groups.items()]
        both = [(found, _gated(head.maps(fields), gate, fields, widths)) for found, fields in read]
        gates_all = gate is not None and len(gate) > columns
        if one and everywhere and not gates_all:
            (found, maps) = both[0]
            first = first_order.at(found.places.numbers, 1) if first_order else None
            return head.of_pairs(_pairs(found, maps, first))
        sums = [_mapped_sums(found, maps, head.common) for found, maps in both]
        logits = head.of_sums(torch.stack(sums).sum(0) if len(sums) > 1 else sums[0])
        if first_order is None:
            return logits
        first_of: Tensor = first_order(ids)
        return logits + (first_of * gate[columns:] if gates_all and gate is not None else first_of).sum(1)

    return logits


def _gated(maps: Tensor, gate: Tensor | None, fields: list[int], widths: tuple[int, ...]) -> Tensor:
    """Maps of fields of equal width (fields, width, K) times the gate of their columns, which equals scaled columns."""
    if gate is None:
        return maps
    of_fields = gate if len(gate) == sum(widths) else gate[: sum(widths)]  # a slice has a backward pass
    if len(fields) == len(widths):
        return maps * of_fields.view(len(fields), -1, 1)
    parts = of_fields.split(widths)
    return maps * torch.stack([parts[j] for j in fields]).unsqueeze(2)


def _mapped_sums(found: Found, maps: Tensor, common: int) -> Tensor:
    sums: Tensor = _MappedSums.apply(found.weights, maps, found, common)  # type: ignore[no-untyped-call]
    return sums


def _pairs(found: Found, maps: Tensor, first: Found | None) -> Tensor:
    of_first = None if first is None else first.weights
    pairs: Tensor = _Pairs.apply(found.weights, of_first, maps, found, first)  # type: ignore[no-untyped-call]
    return pairs


class _MappedSums(torch.autograd.Function):
    """Sums over fields of their mapped rows, and of the squares of their lifts times -1/2."""

    @staticmethod
    def forward(ctx: Any, weights: Tensor, maps: Tensor, found: Found, common: int) -> Tensor:
        """(R, width) and (fields, width, K) to (B, K + 1)."""
        from fieldwise.kernels import sums

        numbers, maps = found.places.numbers.contiguous(), maps.float().contiguous()
        ctx.save_for_backward(weights, numbers, maps)
        ctx.common, ctx.found, ctx.kernels = common, found, sums
        return sums.forward(weights, numbers, maps, common)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        """(B, K + 1) to the maps, and to the sink or the table."""
        (weights, numbers, maps), (of_table, of_maps, *_) = ctx.saved_tensors, ctx.needs_input_grad
        places, own = ctx.kernels.backward(
            weights, numbers, maps, ctx.common, grads[0].float().contiguous(), of_table, of_maps
        )
        return _of_table(places, ctx.found), own, None, None


class _Pairs(torch.autograd.Function):
    """Pairwise products of mapped rows, plus first-order weights."""

    @staticmethod
    def forward(
        ctx: Any, weights: Tensor, of_first: Tensor | None, maps: Tensor, found: Found, first: Found | None
    ) -> Tensor:
        """(R, width), (R, 1) and (fields, width, K) to (B,)."""
        from fieldwise.kernels import sums

        numbers, maps = found.places.numbers.contiguous(), maps.float().contiguous()
        logits, total = sums.pairs(weights, of_first, numbers, maps)
        ctx.save_for_backward(weights, numbers, maps, total)
        ctx.found, ctx.first, ctx.kernels = found, first, sums
        return logits

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None, None, None]:
        """(B,) to the maps, and to the sinks or the tables."""
        (weights, numbers, maps, total), given = ctx.saved_tensors, grads[0].float().contiguous()
        of_table, of_first, of_maps, *_ = ctx.needs_input_grad
        places, own = ctx.kernels.backward(weights, numbers, maps, maps.shape[2], given, of_table, of_maps, total)
        table = _of_table(places, ctx.found)
        first = _of_table(given.unsqueeze(1), ctx.first) if of_first else None
        return table, first, own, None, None


def _of_table(grads: Tensor | None, found: Found) -> Tensor | None:
    """Gives gradients at places to the sink, or sums them to those of the table if there is none."""
    if grads is None:
        return None
    if found.sink is not None:
        found.sink(grads)
        return None
    numbers, width = found.places.numbers, found.weights.shape[1]
    at_places = grads.reshape(len(numbers), -1, width).expand(*numbers.shape, width)
    return deterministic_sum.sums(at_places.flatten(0, 1), numbers.flatten(), len(found.weights))
