"""L2 regularity: squares of the weights of tables in the loss of a retraining."""

from collections.abc import Callable, Collection
from typing import Annotated, Any, Final

import torch
from pydantic import Field
from torch import Tensor, nn

from fieldwise.core.automatic import AUTO, Auto, number_or_auto
from fieldwise.core.errors import SettingsError
from fieldwise.models.model import HeadModel
from fieldwise.tables.embedding import FieldEmbedding
from fieldwise.tables.optimizer import Method, table_weights

STRENGTH: Final = 0.003
"""What `auto` is for small tables,"""
ROUNDED_STRENGTH: Final = 0.01
"""and for those that are rounded while they are trained."""
LARGEST: Final = 2**20
"""Weights of tables up to which `auto` is not 0: every row moves in every step, which takes time."""
_Strength = Annotated[float, Field(ge=0, allow_inf_nan=False)]
L2 = Annotated[_Strength | Auto, number_or_auto(_Strength)]


def strength_of(l2: L2, model: nn.Module, optimizer: Method, rounds: bool = False) -> float:
    """The number for a model, whose tables are rounded or not; refuses one that its optimizer or tables cannot use."""
    by_row = optimizer == "rowwise-adagrad"
    sharded = any(module.shards for module in model.modules() if isinstance(module, FieldEmbedding))
    if l2 == AUTO:
        small = sum(weight.numel() for weight in table_weights(model)) <= LARGEST
        strength = ROUNDED_STRENGTH if rounds else STRENGTH
        return strength if small and not (by_row or sharded) else 0.0
    check_l2(l2, optimizer, sharded)
    return l2


def check_l2(l2: L2, optimizer: Method, sharded: bool) -> None:
    """Refuse a number that an optimizer or sharded tables cannot use."""
    by_row = optimizer == "rowwise-adagrad"
    if l2 not in (AUTO, 0) and (by_row or sharded):
        why = "optimizer = 'rowwise-adagrad' moves only rows that a batch reads" if by_row else "tables are sharded"
        raise SettingsError(
            f"[retrain] l2 = {l2} moves every row of every table, and {why}. Allowed: 0 or auto. Leave l2 out."
        )


def penalty(
    model: nn.Module, strength: float, batch: int, left_out: Collection[int] = ()
) -> Callable[[], Tensor] | None:
    """Half the squares of the weights of tables, times the strength; of a mean loss over `batch` rows.

    First-order weights of fields that were left out as harmful do not count: they stayed because they help as they are,
    and most of their values have one or two rows, which would lose to the squares.
    """
    weights = [weight for weight in table_weights(model) if weight.requires_grad]
    if not (strength and weights):
        return None
    spared: dict[nn.Parameter, list[slice]] = {}
    for module, j in first_order_of(model, left_out):
        weight, rows = module.span(j)
        spared.setdefault(weight, []).append(rows)
    without = [spared.get(weight, []) for weight in weights]

    def of_weights() -> Tensor:
        squares: Tensor = _HalfSquares.apply(strength / batch, without, *weights)  # type: ignore[no-untyped-call]
        return squares

    return of_weights


class _HalfSquares(torch.autograd.Function):
    """Half the squares of weights times a factor, without some rows of each; two operations per weight."""

    @staticmethod
    def forward(ctx: Any, factor: float, without: list[list[slice]], *weights: Tensor) -> Tensor:
        """All weights to one number."""
        ctx.save_for_backward(*weights)
        ctx.factor, ctx.without = factor, without
        squares = [weight.flatten().dot(weight.flatten()) for weight in weights]
        squares += [-weight[rows].square().sum() for weight, own in zip(weights, without, strict=True) for rows in own]
        return torch.stack(squares).sum() * (factor / 2)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """The weights times the factor."""
        found = [weight * (grads[0] * ctx.factor) for weight in ctx.saved_tensors]
        for grad, own in zip(found, ctx.without, strict=True):
            for rows in own:
                grad[rows] = 0
        return None, None, *found


def first_order_of(model: nn.Module, fields: Collection[int]) -> list[tuple[FieldEmbedding, int]]:
    """The first-order weights that a model has of some fields: their module, and the field."""
    first = model.first_order if isinstance(model, HeadModel) else None
    return [(first, j) for j in fields if first is not None and first.layout.widths[j]]
