"""Soft orthogonality: columns of one table should not repeat each other (paper, equation SO)."""

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional

from fieldwise.core.settings import Settings
from fieldwise.models.embedding import FieldEmbedding


class SoftOrthogonality(Settings):
    """strength * sum over fields of || V^T V - I ||^2 / width^2, on the tables or their normalised columns."""

    strength: float = Field(1e-3, ge=0)
    """Weight beside the loss; 0 leaves it out. The paper: 1e-3 raw on MovieLens-1M, 1e-6 cosine on Avazu."""
    form: Literal["raw", "cosine"] = "raw"
    """raw: the tables; cosine: their columns scaled to length 1, so that only angles count."""

    def penalty(self, embedding: FieldEmbedding) -> Tensor:
        """What is added to the training loss, a scalar."""
        layout = embedding.layout
        total = torch.zeros((), device=next(embedding.parameters()).device)
        for j, width in enumerate(layout.widths):
            if width:
                table = embedding.table(j)
                table = functional.normalize(table, dim=0) if self.form == "cosine" else table
                gap = table.T @ table - torch.eye(width, device=table.device)  # (width, width)
                total = total + gap.square().sum() / width**2
        return self.strength * total
