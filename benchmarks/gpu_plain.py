"""FM and DCN-V2 as a user of PyTorch would write them: `nn.EmbeddingBag`, `torch.compile`, fused Adam.

Used by gpu.py for a comparison in the same run. The tables of all fields are one, as in fieldwise, and rows are on the
GPU. Sums of gradients are added in any order, so two trainings differ. The first four steps, which compile, are not
counted.
"""

from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

WARM_UP: Final = 4
WAYS: Final = {"as it is": None, "reduce-overhead": "reduce-overhead"}
"""Modes of torch.compile; the second captures CUDA graphs."""


class FM(nn.Module):
    """First-order weights and pairwise products; without the lifts of fieldwise's FM, so it computes less."""

    def __init__(self, rows: int, fields: int, width: int = 16) -> None:
        super().__init__()
        self.table, self.linear = nn.Embedding(rows, width), nn.EmbeddingBag(rows, 1, mode="sum")
        self.bias = nn.Parameter(torch.zeros(1))
        nn.init.normal_(self.table.weight, 0, 0.01)

    def forward(self, rows: Tensor) -> Tensor:
        """Logits (B,) of row numbers (B, fields)."""
        v = self.table(rows)
        pairs = 0.5 * (v.sum(1).square() - v.square().sum(1)).sum(1)
        return pairs + self.linear(rows).squeeze(1) + self.bias


class DCNv2(nn.Module):
    """Three cross layers and an MLP of two layers with 16 units, like fieldwise's default."""

    def __init__(self, rows: int, fields: int, width: int = 16) -> None:
        super().__init__()
        self.table, columns = nn.EmbeddingBag(rows, width, mode="sum"), fields * width
        nn.init.normal_(self.table.weight, 0, 0.01)
        self.cross = nn.ModuleList(nn.Linear(columns, columns) for _ in range(3))
        layers: list[nn.Module] = []
        for before in (columns, 16):
            layers += [nn.Linear(before, 16), nn.BatchNorm1d(16), nn.ReLU()]
        self.mlp, self.out = nn.Sequential(*layers), nn.Linear(columns + 16, 1)

    def forward(self, rows: Tensor) -> Tensor:
        """Logits (B,) of row numbers (B, fields)."""
        v = x = self.table(rows.reshape(-1, 1)).view(len(rows), -1)
        for layer in self.cross:
            x = x + v * layer(x)
        return self.out(torch.cat([x, self.mlp(v)], 1)).squeeze(1)


KINDS: Final[dict[str, Any]] = {"fm": FM, "dcnv2": DCNv2}


def train(
    ids: NDArray[np.int32], labels: NDArray[np.uint8], counts: tuple[int, ...], model: str, batch: int, precision: str,
    way: str,
) -> float:  # fmt: skip
    """Samples per second of an epoch's steps, without shuffle and evaluation."""
    torch._dynamo.reset()
    offsets = torch.tensor(counts).cumsum(0) - torch.tensor(counts)
    rows = (torch.from_numpy(ids) + offsets).int().cuda()
    clicks = torch.from_numpy(labels).float().cuda()
    plain = KINDS[model](sum(counts), len(counts)).cuda()
    adam = torch.optim.Adam(plain.parameters(), fused=True)
    compiled = torch.compile(plain, mode=WAYS[way])
    order = torch.randperm(len(rows), device="cuda").split(batch)
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"

    def step(index: Tensor) -> None:
        with torch.autocast("cuda", torch.bfloat16, enabled=precision == "bfloat16"):
            logits = compiled(rows[index])
        adam.zero_grad()
        nn.functional.binary_cross_entropy_with_logits(logits.float(), clicks[index]).backward()
        adam.step()

    for index in order[:WARM_UP]:
        step(index)
    began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    began.record()
    for index in order:
        step(index)
    ended.record()
    torch.cuda.synchronize()
    torch.backends.cuda.matmul.allow_tf32 = False
    return len(order) * batch / float(began.elapsed_time(ended)) * 1e3
