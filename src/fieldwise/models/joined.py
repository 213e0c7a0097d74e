"""A model with tiers, over rows without: a faster pass for training."""

from typing import Final

from torch import Tensor, nn

from fieldwise.models.model import HeadModel
from fieldwise.tables.joined import JoinedTables

FEW: Final = 2**18
"""Numbers of joined tables up to which a step is always faster with them,"""
TIMES: Final = 4
"""and in multiples of the weights of the tiers: all numbers are put in place at every step."""


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
        self.embedding.refresh()
        logits: Tensor = self.head(self.embedding(ids))
        if self.first_order is None:
            return logits
        self.first_order.refresh()
        first: Tensor = self.first_order(ids)
        return logits + first.sum(1)


def joined_model(model: nn.Module) -> JoinedModel | None:
    """The model over joined rows, if training steps are faster with it.

    None without tiers, on a GPU, where other processes hold rows, or where joined tables would have too many zeros.
    """
    if not isinstance(model, HeadModel) or model.layout.shared is None or not model.embedding.groups:
        return None
    tables = [model.embedding, *([model.first_order] if model.first_order else [])]
    if any(table.shards or next(table.parameters()).is_cuda for table in tables):
        return None
    found = JoinedModel(model)
    return found if found.embedding.layout.params <= max(FEW, TIMES * model.layout.params) else None
