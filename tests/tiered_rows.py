"""Rows with tiers, the same rows without, masks of their columns, and passes over joined rows."""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor

from fieldwise.core.mask import Mask
from fieldwise.core.schema import Field, Layout, Schema
from fieldwise.models.joined import JoinedModel

SCHEMA = Schema((
    Field("a", 5), Field("u:frequent", 4), Field("u:middle", 8), Field("u:rare", 30), Field("b", 7, 3),
    Field("i:frequent", 20), Field("i:rare", 40),
))  # fmt: skip
PLAIN = Schema((Field("a", 5), Field("u", 40), Field("b", 7, 3), Field("i", 59)))
"""The same columns without tiers: ids follow each other, and 0 is `unknown`."""


def rows(count: int = 300) -> tuple[Tensor, Tensor]:
    """Ids in tiers and without; a fifth of the values is unknown."""
    draw = np.random.default_rng(0)
    plain = {f.name: draw.integers(0, f.cardinality, (count, f.length)) for f in PLAIN.fields}
    for name in ("u", "i"):
        plain[name][draw.random(count) < 0.2] = 0
    tiers = dict(plain)
    for column, names in SCHEMA.tiers.items():
        start = 0
        for field in (f for f in SCHEMA.fields if len(names) > 1 and f.name in names):
            own = plain[column] - start
            tiers[field.name] = np.where((own > 0) & (own < field.cardinality), own, 0)
            start += field.cardinality - 1
    found = (np.concatenate([ids[f.name] for f in s.fields], 1) for s, ids in ((SCHEMA, tiers), (PLAIN, plain)))
    first, second = (torch.from_numpy(ids.astype(np.int32)) for ids in found)
    return first, second


IDS, PLAIN_IDS = rows()


def random_mask(layout: Layout, seed: int, fraction: float = 0.4) -> Mask:
    return Mask.of(layout, (np.random.default_rng(seed).random(layout.columns) < fraction).astype(int))


@contextmanager
def joined_passes() -> Iterator[list[int]]:
    """A block that notes the number of rows of every pass over joined rows."""
    found, forward = list[int](), JoinedModel.forward

    def counted(self: JoinedModel, ids: Tensor) -> Tensor:
        found.append(len(ids))
        return forward(self, ids)

    with patch.object(JoinedModel, "forward", counted):
        yield found
