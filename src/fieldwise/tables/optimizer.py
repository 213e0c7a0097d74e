"""The optimizer: dense weights are updated at every step, rows of large tables only when they are read."""

from collections.abc import Collection, Iterator, Set
from contextlib import contextmanager
from functools import partial
from typing import Final, Literal

import torch
from torch import Tensor, nn

from fieldwise.kernels.available import has_kernels
from fieldwise.processes.ranks import current
from fieldwise.tables.beside import Beside
from fieldwise.tables.embedding import FieldEmbedding
from fieldwise.tables.fused_adam import FusedAdam, ReadRows, WholeTables
from fieldwise.tables.lookup import Distinct, Found, Reader, whole_table
from fieldwise.tables.rate import Rate
from fieldwise.tables.shards import Shards
from fieldwise.tables.sparse_optimizers import RowwiseAdagrad, SparseAdam, SparseOptimizer
from fieldwise.tables.state import Tensors, named, optimizer_tensors, restore_optimizer, under

Method = Literal["adam", "dense-adam", "rowwise-adagrad"]
"""adam: the updates of dense Adam, applied to rows of large tables only when they are read; dense-adam: every row at
every step; rowwise-adagrad: row-wise Adagrad for tables, Adam for all other weights."""

LARGE: Final = {"cpu": 2, "cuda": 64, "kernels": 8}
"""Tables more than this many times larger than a batch's reads are updated by row; others are faster as a whole."""


class Optimizer:
    """Adam for a model's weights, with row-wise reads and updates of large tables.

    With `dense`, every table counts as small: for losses with a gradient in every row. `table_rate` multiplies the
    learning rate of tables and first-order weights, except that it does not raise those in `slow`. If the rate decays,
    `at` must be called before each step.
    """

    def __init__(
        self,
        model: nn.Module,
        method: Method,
        rate: Rate,
        batch: int,
        dense: bool = False,
        table_rate: float = 1.0,
        slow: Collection[nn.Parameter] = (),
    ) -> None:
        self._modules = [module for module in model.modules() if isinstance(module, FieldEmbedding)]
        self._rows: list[SparseOptimizer | FusedAdam] = []
        self._place: dict[nn.Parameter, tuple[SparseOptimizer | FusedAdam, int]] = {}
        rounded = any(module.rounding for module in self._modules)
        fused = not (dense or rounded or current().size > 1)
        distinct = Distinct()
        self._shards = {table: shards for module in self._modules for table, shards in module.with_shards()}
        slow = set(slow) if table_rate > 1 else set()
        for tables, places in _stackings(self._modules, slow):
            own = rate if tables[0] in slow else rate.times(table_rate)
            kernels = fused and has_kernels(tables[0].device)
            large = (
                len(tables[0]) > LARGE["kernels" if kernels else tables[0].device.type] * batch * places
                or tables[0] in self._shards
            )
            if method == "rowwise-adagrad":
                rows: SparseOptimizer | FusedAdam = RowwiseAdagrad(tables, own, distinct)
            elif kernels:
                by_row = method == "adam" and large
                rows = (ReadRows if by_row else WholeTables)(tables, own)
            elif method == "adam" and large and not dense:
                rows = SparseAdam(tables, own, distinct)
            else:
                continue
            rows.split = tables[0] in self._shards and self._shards[tables[0]].apart
            self._rows.append(rows)
            self._place |= {table: (rows, place) for place, table in enumerate(tables)}
        self._dense = [weight for weight in model.parameters() if weight not in self._place]
        on_gpu = any(weight.is_cuda for weight in self._dense)
        self._beside = Beside("dense layers")
        self._rates, groups = [rate], [self._dense]
        if table_rate != 1:
            inside = set(table_weights(model)) - slow
            self._rates.append(rate.times(table_rate))
            groups = [[w for w in self._dense if w not in inside], [w for w in self._dense if w in inside]]
        tops = [_tensor(r.top, self._dense[0].device) if on_gpu and rate.steps else r.top for r in self._rates]
        self._adam = torch.optim.Adam(
            [{"params": group, "lr": top} for group, top in zip(groups, tops, strict=True)],
            fused=True,
            capturable=on_gpu,
        )

    @property
    def same_shapes(self) -> bool:
        """Whether all steps use tensors of the same shapes; the number of rows read from a large table varies."""
        return all(isinstance(rows, FusedAdam) for rows in self._rows)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """A context in which the model reads up-to-date rows; on exit, the tables themselves are up to date."""
        for module in self._modules:
            module.reader = self._reader(module)
        try:
            yield
        finally:
            for module in self._modules:
                module.reader = whole_table
            for rows in self._rows:
                rows.settle()

    def _reader(self, module: FieldEmbedding) -> Reader:
        def reader(table: nn.Parameter, rows: Tensor) -> Found:
            if table not in self._place:
                return whole_table(table, rows)
            large, place = self._place[table]
            return large.read(rows, module.training, place)

        return reader

    def prepare(self, ids: Tensor) -> None:
        """Begin with what the next step needs to know of its batch (B, places), beside what comes before it."""
        for module in self._modules:
            for width in module.groups:
                rows, _ = self._place.get(module.tables[str(width)], (None, 0))
                if isinstance(rows, FusedAdam) and not module.is_pooled(width):
                    rows.prepare(partial(module.rows, ids, width), ids)

    def forget(self) -> None:
        """Clear the gradients of the last step."""
        for weight in self._dense:  # zero_grad has profiling overhead at every step
            weight.grad = None

    def at(self, step: int) -> None:
        """Set the rate of a step, from 0; outside of the step itself, which a GPU may replay."""
        for rows in self._rows:
            if isinstance(rows, FusedAdam):
                rows.at(step)
        for rate, group in zip(self._rates, self._adam.param_groups, strict=True):
            if rate.steps is None:
                continue
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate.at(step))
            else:
                group["lr"] = rate.at(step)

    def step(self) -> None:
        """Update all weights by the gradients of the last backward pass."""
        self._add_over_ranks()
        with self._beside(self._dense[0]):
            self._adam.step()
        for rows in self._rows:
            rows.step()
        self._beside.join()

    def _add_over_ranks(self) -> None:
        """Sum the gradients over all processes; a weight that no process used stays without one."""
        ranks = current()
        if ranks.size == 1:
            return
        same = [weight for weight in self._dense if weight not in self._shards]
        used = torch.tensor([float(weight.grad is not None) for weight in same], device=self._dense[0].device)
        for weight in same:
            weight.grad = torch.zeros_like(weight) if weight.grad is None else weight.grad
        ranks.add([used, *(weight.grad for weight in same if weight.grad is not None)])
        for weight, count in zip(same, used.tolist(), strict=True):
            weight.grad = weight.grad if count else None

    def settle(self, table: nn.Parameter, rows: slice) -> None:
        """Bring rows of a table up to date between two steps, before a change that is not a gradient step."""
        if table in self._place:
            self._place[table][0].settle(rows)

    def tensors(self) -> Tensors:
        """State for a checkpoint."""
        tensors = named("adam", optimizer_tensors(self._adam))
        for place, rows in enumerate(self._rows):
            tensors |= named(f"rows.{place}", rows.tensors())
        return tensors

    def shards(self) -> dict[str, Shards]:
        """How tensors of `tensors` are split over processes, by name."""
        weights = [weight for group in self._adam.param_groups for weight in group["params"]]
        split = [(place, self._shards[weight]) for place, weight in enumerate(weights) if weight in self._shards]
        found = {f"adam.{place}.{name}": own for place, own in split for name in ("exp_avg", "exp_avg_sq")}
        for place, rows in enumerate(self._rows):
            table = next(table for table, (own, _) in self._place.items() if own is rows)
            if table in self._shards:
                found |= {f"rows.{place}.{name}": self._shards[table] for name in rows.tensors() if name != "step"}
        return found

    def restore(self, tensors: Tensors) -> None:
        """Restore a checkpoint."""
        restore_optimizer(self._adam, under("adam", tensors))
        for place, rows in enumerate(self._rows):
            rows.restore(under(f"rows.{place}", tensors))


def table_weights(model: nn.Module) -> list[nn.Parameter]:
    """The weights of tables and first-order weights, the library's or torch's, each once."""
    kinds = (FieldEmbedding, nn.Embedding, nn.EmbeddingBag)
    found = [weight for module in model.modules() if isinstance(module, kinds) for weight in module.parameters()]
    return list(dict.fromkeys(found))


def _tensor(value: float, device: torch.device) -> Tensor:
    return torch.tensor(value, device=device)


def _stackings(modules: list[FieldEmbedding], slow: Set[nn.Parameter]) -> Iterator[tuple[list[nn.Parameter], int]]:
    """Groups of tables that stack the same fields, and the number of ids per row that read each.

    Slow tables have groups of their own.
    """
    found: dict[tuple[tuple[int, ...], int, int, bool], list[nn.Parameter]] = {}
    for module in modules:
        for table, fields, places in module.stackings():
            found.setdefault((fields, len(table), places, table in slow), []).append(table)
    for (_, _, places, _), tables in found.items():
        yield tables, places
