"""A model with tiers, over rows without: a faster pass for training."""

from typing import Final

from torch import Tensor, nn

from fieldwise.models.layers import PADDED
from fieldwise.models.model import HeadModel
from fieldwise.tables.joined import JoinedTables, joined_layout

FEW: Final = 2**17
"""Numbers of joined tables that are always few enough to be put in place at every step,"""
TIMES: Final = 2
"""or in multiples of the numbers that a batch reads."""


class JoinedModel(nn.Module):
    """The head and the weights of a model with tiers, for ids of `schema.joined`; the same logits."""

    def __init__(self, model: HeadModel) -> None:
        super().__init__()
        first = model.first_order
        self.embedding = JoinedTables(model.embedding, padded=model.head.takes_padded)
        self.first_order = JoinedTables(first, added=True) if first else None
        self.head = model.head

    def forward(self, ids: Tensor) -> Tensor:
        """Logits (B,) of ids (B, places)."""
        logits: Tensor = self.head(self.embedding(ids))
        if self.first_order is None:
            return logits
        first: Tensor = self.first_order(ids)
        return logits + first.sum(1)


def joined_model(model: nn.Module, batch: int) -> JoinedModel | None:
    """The model over joined rows, if training steps on batches of so many rows are faster with it.

    None without tiers, on a GPU, where other processes hold rows, where the joined tables are large for such a batch,
    or where padding makes the batch too large.
    """
    if not isinstance(model, HeadModel) or model.layout.shared is None or not model.embedding.groups:
        return None
    tables = [model.embedding, *([model.first_order] if model.first_order else [])]
    if any(table.shards or next(table.parameters()).is_cuda for table in tables):
        return None
    layout = joined_layout(model.layout, model.head.takes_padded)
    numbers = layout.params + (joined_layout(model.linear).params if model.first_order and model.linear else 0)
    reads = batch * layout.columns
    if (model.head.takes_padded and reads > PADDED) or numbers > max(FEW, TIMES * reads):
        return None
    return JoinedModel(model)
