"""Modules as users write them, one pattern each, with a batch for each."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.small_models import draw_statistics

ROWS = (11, 5, 9)
WIDTH = 6
BATCH = 16


def ids(batch: int = BATCH) -> Tensor:
    return torch.stack([torch.randint(0, rows, (batch,)) for rows in ROWS], 1)


class Base(nn.Module):
    """One table per field; `body` gets their outputs as a list."""

    def __init__(self, **table: Any) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(rows, WIDTH, **table) for rows in ROWS)

    def vectors(self, x: Tensor) -> list[Tensor]:
        return [table(x[:, i]) for i, table in enumerate(self.tables)]


class Concat(Base):
    def __init__(self, **table: Any) -> None:
        super().__init__(**table)
        self.deep = nn.Sequential(nn.Linear(3 * WIDTH, 8), nn.ReLU(), nn.Linear(8, 1))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.deep(torch.cat(self.vectors(x), 1)).squeeze(1)
        return out


class Normed(Base):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(3 * WIDTH)
        self.drop = nn.Dropout(0.5)
        self.deep = nn.Linear(3 * WIDTH, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.deep(self.drop(self.norm(torch.cat(self.vectors(x), 1)))).squeeze(1)
        return out


class LayerNormed(Base):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(3 * WIDTH)
        self.deep = nn.Linear(3 * WIDTH, 1)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.deep(self.norm(torch.cat(self.vectors(x), 1))).squeeze(1)
        return out


class Cross(Base):
    """DCN-V2."""

    def __init__(self) -> None:
        super().__init__()
        self.cross = nn.ModuleList(nn.Linear(3 * WIDTH, 3 * WIDTH) for _ in range(2))
        self.out = nn.Linear(3 * WIDTH, 1)

    def forward(self, x: Tensor) -> Tensor:
        first = torch.cat(self.vectors(x), 1)
        v = first
        for layer in self.cross:
            v = first * layer(v) + v
        out: Tensor = self.out(v).squeeze(1)
        return out


class Machine(Base):
    """FM: stacked vectors, first-order weights of width 1."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.ModuleList(nn.Embedding(rows, 1) for rows in ROWS)
        self.deep = nn.Linear(3 * WIDTH, 1)

    def forward(self, x: Tensor) -> Tensor:
        v = torch.stack(self.vectors(x), 1)
        pairs = (v.sum(1).square() - v.square().sum(1)).sum(1)
        first = torch.stack([table(x[:, i]) for i, table in enumerate(self.first)], 1).sum((1, 2))
        out: Tensor = pairs + first + self.deep(v.flatten(1)).squeeze(1)
        return out


class Summed(Base):
    """A module of its own with a bare weight, which takes features and returns one number per row."""

    class Head(nn.Module):
        """Sums all features."""

        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(3 * WIDTH))

        def forward(self, v: Tensor) -> Tensor:
            return (v * self.scale).sum(1)

    def __init__(self) -> None:
        super().__init__()
        self.head, self.last = Summed.Head(), nn.PReLU()

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.last(self.head(torch.cat(self.vectors(x), 1)))
        return out


class Stacked(nn.Module):
    """One table for all fields, read with offsets and a view."""

    def __init__(self) -> None:
        super().__init__()
        self.offsets: Tensor
        self.register_buffer("offsets", torch.tensor([0, 11, 16]))
        self.table = nn.Embedding(sum(ROWS), WIDTH)
        self.deep = nn.Linear(3 * WIDTH, 1)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.table(x + self.offsets)
        out: Tensor = self.deep(found.view(x.shape[0], -1)).squeeze(1)
        return out


class Attending(Base):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(WIDTH, 2, batch_first=True)
        self.norm = nn.LayerNorm(WIDTH)
        self.deep = nn.Linear(3 * WIDTH, 1)

    def forward(self, x: Tensor) -> Tensor:
        v = torch.stack(self.vectors(x), 1)
        seen, _ = self.attention(v, v, v)
        out: Tensor = self.deep(self.norm(v + seen).flatten(1)).squeeze(1)
        return out


class Convolved(Base):
    """Fields as channels; a field with no columns is a dead channel."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(3, 4, 3, padding=1)
        self.norm = nn.BatchNorm1d(4)
        self.deep = nn.Linear(4 * WIDTH, 1)

    def forward(self, x: Tensor) -> Tensor:
        v = torch.stack(self.vectors(x), 1)
        out: Tensor = self.deep(torch.relu(self.norm(self.conv(v))).flatten(1)).squeeze(1)
        return out


class TwoTasks(Base):
    """Outputs a dict of tasks, and branches on the input's shape."""

    def __init__(self) -> None:
        super().__init__()
        self.shared = nn.Linear(3 * WIDTH, 8)
        self.towers = nn.ModuleDict({"click": nn.Linear(8, 1), "buy": nn.Linear(8, 1)})

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        hidden = torch.relu(self.shared(torch.cat(self.vectors(x), 1)))
        if hidden.mean().item() > 1e6:  # control flow on values
            hidden = hidden / 2
        return {name: tower(hidden).squeeze(1) for name, tower in self.towers.items()}


class Bags(nn.Module):
    """Bags with offsets, and with per-sample weights if the mode allows them."""

    def __init__(self, mode: str, **table: Any) -> None:
        super().__init__()
        self.bag = nn.EmbeddingBag(20, WIDTH, mode=mode, **table)
        self.other = nn.Embedding(7, WIDTH)
        self.deep = nn.Linear(2 * WIDTH, 1)

    def forward(self, values: Tensor, offsets: Tensor, weights: Tensor | None, x: Tensor) -> Tensor:
        pooled = self.bag(values, offsets, per_sample_weights=weights)
        out: Tensor = self.deep(torch.cat([pooled, self.other(x)], 1)).squeeze(1)
        return out


class Twice(nn.Module):
    """A table that is read twice, and a table that shares its weight with another module."""

    def __init__(self) -> None:
        super().__init__()
        self.item = nn.Embedding(13, WIDTH, padding_idx=0)
        self.query, self.key = nn.Embedding(9, WIDTH), nn.Embedding(9, WIDTH)
        self.key.weight = self.query.weight
        self.deep = nn.Linear(4 * WIDTH, 1)

    def forward(self, target: Tensor, history: Tensor, a: Tensor, b: Tensor) -> Tensor:
        seen = self.item(history)
        there = (history != 0).unsqueeze(2)
        mean = (seen * there).sum(1) / there.sum(1).clamp(min=1)
        parts = [self.item(target), mean, self.query(a), self.key(b)]
        out: Tensor = self.deep(torch.cat(parts, 1)).squeeze(1)
        return out


class Decoder(nn.Module):
    """A table that shares its weight with a linear layer, and a table that does not."""

    def __init__(self) -> None:
        super().__init__()
        self.user, self.item = nn.Embedding(8, WIDTH), nn.Embedding(12, WIDTH)
        self.mix = nn.Linear(2 * WIDTH, WIDTH)
        self.decode = nn.Linear(WIDTH, 12, bias=False)
        self.decode.weight = self.item.weight

    def forward(self, user: Tensor, item: Tensor) -> Tensor:
        out: Tensor = self.decode(self.mix(torch.cat([self.user(user), self.item(item)], 1)))
        return out


class Held(Concat):
    """Holds a non-leaf tensor, which copy.deepcopy rejects, and a list of its layers."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = next(self.deep.parameters()).sum() * 0 + 2
        self.order: list[nn.Module] = [self.deep[0], self.deep[2]]

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.relu(self.order[0](torch.cat(self.vectors(x), 1)))
        out: Tensor = self.order[1](hidden).squeeze(1) * self.scale.detach()
        return out


class Locked(Concat):
    """Cannot be copied at all."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = (row for row in range(3))


def _bag_call(weighed: bool) -> tuple[Any, ...]:
    weights = torch.rand(40) if weighed else None
    return torch.randint(0, 20, (40,)), torch.arange(0, 40, 5), weights, torch.randint(0, 7, (8,))


def _twice_call() -> tuple[Any, ...]:
    history = torch.randint(0, 13, (BATCH, 4))
    return torch.randint(1, 13, (BATCH,)), history, torch.randint(0, 9, (BATCH,)), torch.randint(0, 9, (BATCH,))


Case = Callable[[], tuple[nn.Module, tuple[Any, ...]]]
CASES: dict[str, Case] = {
    "concatenation": lambda: (Concat(), (ids(),)),
    "sparse gradients": lambda: (Concat(sparse=True), (ids(),)),
    "max_norm": lambda: (Concat(max_norm=0.7), (ids(),)),
    "padding_idx": lambda: (Concat(padding_idx=0), (ids(),)),
    "batch norm": lambda: (Normed(), (ids(),)),
    "layer norm": lambda: (LayerNormed(), (ids(),)),
    "cross": lambda: (Cross(), (ids(),)),
    "factorization machine": lambda: (Machine(), (ids(),)),
    "one number per row": lambda: (Summed(), (ids(),)),
    "one table, offsets": lambda: (Stacked(), (ids(),)),
    "attention": lambda: (Attending(), (ids(),)),
    "convolution": lambda: (Convolved(), (ids(),)),
    "dict of tasks": lambda: (TwoTasks(), (ids(),)),
    "bag, sum, weights": lambda: (Bags("sum"), _bag_call(True)),
    "bag, mean, padding": lambda: (Bags("mean", padding_idx=3), _bag_call(False)),
    "bag, max": lambda: (Bags("max"), _bag_call(False)),
    "bag, max_norm": lambda: (Bags("sum", max_norm=0.5), _bag_call(True)),
    "read twice, tied": lambda: (Twice(), _twice_call()),
    "tied to a linear layer": lambda: (Decoder(), (torch.randint(0, 8, (9,)), torch.randint(0, 12, (9,)))),
    "holds a result": lambda: (Held(), (ids(),)),
    "double precision": lambda: (Cross().double(), (ids(),)),
    "bfloat16": lambda: (Concat().bfloat16(), (ids(),)),
}


def shaken(model: nn.Module) -> Any:
    """Set weights and statistics to values as after training, large enough to affect outputs."""
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(torch.randn(weight.shape) * 0.5)
        for module in model.modules():
            if isinstance(module, nn.Embedding | nn.EmbeddingBag) and module.padding_idx is not None:
                module.weight[module.padding_idx] = 0
    draw_statistics(model)
    return model


def loss_of(model: nn.Module, args: tuple[Any, ...]) -> Tensor:
    """Return a loss: the mean over rows."""
    out = model(*args)
    outs = list(out.values()) if isinstance(out, dict) else [out]
    total = torch.stack(
        [functional.binary_cross_entropy_with_logits(o.float(), torch.ones_like(o).float()) for o in outs]
    )
    return total.mean()
