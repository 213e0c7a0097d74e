"""Row-factored forward passes: linear maps are applied once per distinct table row, instead of once per place.

FM and the first layer of DeepFM's MLP apply a linear map per field and sum the results. Each map is therefore needed
only once per table row that a batch reads; an embedding bag sums the mapped rows. A batch of 2,048 rows with Criteo's
39 fields has 80 thousand places and reads 17 thousand distinct rows.
"""

from dataclasses import replace
from typing import Any, Final, cast

import torch
from torch import Tensor, nn

from fieldwise.tables.embedding import FieldEmbedding
from fieldwise.tables.lookup import Distinct, Found, bag
from fieldwise.tables.mapped_sums import is_mapped_on_gpu, mapped_on_gpu
from fieldwise.tables.summed import Forward, HeadOverTables, SharedMaps, SummedHead

PLACES: Final = 2**12
"""Places of a batch per width of the tables from which a pass by rows is faster."""


def is_row_factored(model: object) -> bool:
    """Whether `row_factored` has a faster forward pass for this model."""
    embedding = getattr(model, "embedding", None)
    if not (isinstance(getattr(model, "head", None), SummedHead) and isinstance(embedding, FieldEmbedding)):
        return False
    single = bool(embedding.groups) and max(embedding.layout.schema.lengths) == 1
    return single and not next(embedding.parameters()).is_cuda


def row_factored(model: nn.Module, batch: int | None = None) -> Forward:
    """A faster forward pass for training and searching if the model allows it, else the model itself.

    On a CPU only if batches of so many rows have enough places for it.
    """
    if is_mapped_on_gpu(model):
        return mapped_on_gpu(model)
    given = cast(HeadOverTables, model)
    if not is_row_factored(model) or (batch is not None and _is_small(batch, given.embedding)):
        return model
    head, embedding, first_order = given.head, given.embedding, given.first_order
    assert isinstance(head, SummedHead)

    distinct, columns = Distinct(), _columns(embedding.layout.widths)
    shared = SharedMaps(head, embedding.layout) if embedding.layout.shared is not None else None

    def logits(ids: Tensor, gate: Tensor | None = None) -> Tensor:
        sums, of_first_order = [], None
        if shared is not None:
            shared.read()
        single = None if first_order is None else distinct.of(first_order.find(ids, 1))
        if first_order is not None and single is not None and gate is not None and len(gate) > embedding.layout.columns:
            single = _gated(first_order, single, gate[embedding.layout.columns :])
        for width, fields in embedding.groups.items():
            found = distinct.of(embedding.find(ids, width))
            counts = embedding.counts(found, fields)
            weights, maps = found.weights, head.maps(fields) if shared is None else shared.maps(fields)
            counts_at = None if shared is None else given.vectors.reads(ids, fields)
            if gate is not None:
                maps = maps * gate[columns[fields, :width]].unsqueeze(2)  # scaling a column equals scaling its map
                weights = weights.detach() if gate.requires_grad else weights  # only the gate needs a gradient
            features = _features(weights, maps, counts, head.common)
            if (
                single is not None and single.places is found.places and counts_at is None
            ):  # all fields in one table: one embedding bag for both
                both = bag(torch.cat([features, single.weights], 1), found.places)
                of_fields, of_first_order = both.split([features.shape[1], 1], 1)
                sums.append(of_fields)
            else:
                read = None if counts_at is None else counts_at.to(features.dtype)
                sums.append(bag(features, found.places, read))
        of_sums = head.of_sums(torch.stack(sums).sum(0) if len(sums) > 1 else sums[0])
        if single is None:
            return of_sums
        return of_sums + (bag(single.weights, single.places) if of_first_order is None else of_first_order).squeeze(1)

    return logits


def _is_small(batch: int, embedding: FieldEmbedding) -> bool:
    """Whether a batch of so many rows has too few places: each width has its own small operations.

    Tiers have more of them, and each reads `unknown` in most of its places.
    """
    least = PLACES * len(embedding.groups) * (1 if embedding.layout.shared is None else 2)
    return batch * embedding.layout.schema.places < least


def _gated(first_order: FieldEmbedding, found: Found, gate: Tensor) -> Found:
    """First-order weights multiplied by the gate of their field; a gate that needs a gradient is the only one to."""
    counts = torch.tensor(first_order.counts(found, first_order.groups[1]))
    weights = found.weights.detach() if gate.requires_grad else found.weights
    return replace(found, weights=weights * gate.repeat_interleave(counts).unsqueeze(1))


def _columns(widths: tuple[int, ...]) -> Tensor:
    """Indices of each field's columns in the embedding, (F, widest); entries beyond a field's width are unused."""
    ends = torch.tensor(widths).cumsum(0)
    return (ends - torch.tensor(widths))[:, None] + torch.arange(max(widths))


def _features(weights: Tensor, maps: Tensor, counts: list[int], common: int) -> Tensor:
    """The contribution of each row to the sums, (R, K + 1)."""
    features: Tensor = _Features.apply(weights, maps, counts, common)  # type: ignore[no-untyped-call]
    return features


class _Features(torch.autograd.Function):
    """Rows mapped by their fields' maps, and the squares of their lifts times -1/2."""

    @staticmethod
    def forward(ctx: Any, weights: Tensor, maps: Tensor, counts: list[int], common: int) -> Tensor:
        """(R, width) and (fields, width, K) to (R, K + 1); `counts` is the number of rows per field."""
        features = weights.new_empty(len(weights), maps.shape[2] + 1)
        mapped = features[:, :-1]
        for rows, own, out in zip(weights.split(counts), maps, mapped.split(counts), strict=True):
            torch.mm(rows, own, out=out)
        features[:, -1] = features[:, :common].square().sum(1).mul_(-0.5)
        ctx.save_for_backward(weights, maps, features)
        ctx.counts, ctx.common = counts, common
        return features

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor, None, None]:
        """(R, K + 1) to (R, width) and (fields, width, K)."""
        weights, maps, features = ctx.saved_tensors
        of_mapped, of_squares = grads[0].clone().tensor_split([-1], dim=1)
        of_mapped[:, : ctx.common].addcmul_(features[:, : ctx.common], of_squares, value=-1)
        of_weights = torch.empty_like(weights) if ctx.needs_input_grad[0] else None
        of_maps = torch.empty_like(maps)
        for place, (rows, grad) in enumerate(zip(weights.split(ctx.counts), of_mapped.split(ctx.counts), strict=True)):
            torch.mm(rows.t(), grad, out=of_maps[place])
        if of_weights is not None:
            split = of_mapped.split(ctx.counts), maps, of_weights.split(ctx.counts)
            for grad, own, out in zip(*split, strict=True):
                torch.mm(grad, own.t(), out=out)
        return of_weights, of_maps, None, None
