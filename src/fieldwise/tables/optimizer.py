"""How weights are moved: dense weights at every step, rows of large tables when they are read."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Literal

import torch
from torch import Tensor, nn

from fieldwise.tables.embedding import FieldEmbedding
from fieldwise.tables.lookup import Distinct, Found, Reader, whole_table
from fieldwise.tables.sparse_optimizers import RowwiseAdagrad, SparseAdam, SparseOptimizer
from fieldwise.tables.state import Tensors, named, optimizer_tensors, restore_optimizer, under

Method = Literal["adam", "dense-adam", "rowwise-adagrad"]
"""adam: dense Adam's way, by moving large tables' rows only when they are read; dense-adam: every row at every step;
rowwise-adagrad: tables by row-wise Adagrad, all else by Adam."""

LARGE: Final = {"cpu": 2, "cuda": 64}
"""A table is large that holds so many times the rows that a batch reads: below, moving all its rows is quicker."""


class Optimizer:
    """Adam over a model's weights, of which large tables are read and moved row by row.

    With `dense` every table counts as small: for losses with a gradient in every row.
    """

    def __init__(self, model: nn.Module, method: Method, learning_rate: float, batch: int, dense: bool = False) -> None:
        self._modules = [module for module in model.modules() if isinstance(module, FieldEmbedding)]
        self._rows: list[SparseOptimizer] = []
        self._place: dict[nn.Parameter, tuple[SparseOptimizer, int]] = {}
        distinct = Distinct()
        for tables, places in _stackings(self._modules):
            large = len(tables[0]) > LARGE[tables[0].device.type] * batch * places
            if method == "rowwise-adagrad":
                rows: SparseOptimizer = RowwiseAdagrad(tables, learning_rate, distinct)
            elif method == "adam" and large and not dense:
                rows = SparseAdam(tables, learning_rate, distinct)
            else:
                continue
            self._rows.append(rows)
            self._place |= {table: (rows, place) for place, table in enumerate(tables)}
        self._dense = [weight for weight in model.parameters() if weight not in self._place]
        on_gpu = any(weight.is_cuda for weight in self._dense)
        self._adam = torch.optim.Adam(self._dense, lr=learning_rate, fused=True, capturable=on_gpu)

    @property
    def same_shapes(self) -> bool:
        """Whether all steps are alike; rows read of a large table differ in number from step to step."""
        return not self._rows

    @contextmanager
    def reading(self) -> Iterator[None]:
        """While it lasts, the model reads rows up to date; at its end the tables themselves are."""
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

    def forget(self) -> None:
        """Drops the last step's gradients."""
        for weight in self._dense:  # as zero_grad does, which keeps books besides, at every step
            weight.grad = None

    def step(self) -> None:
        """Moves all weights by the gradients that a backward pass has left."""
        self._adam.step()
        for rows in self._rows:
            rows.step()

    def settle(self, table: nn.Parameter, rows: slice) -> None:
        """Brings some rows of a table up to date between two steps, for a change of the table that is no gradient's."""
        if table in self._place:
            self._place[table][0].settle(rows)

    def tensors(self) -> Tensors:
        """What a checkpoint keeps."""
        tensors = named("adam", optimizer_tensors(self._adam))
        for place, rows in enumerate(self._rows):
            tensors |= named(f"rows.{place}", rows.tensors())
        return tensors

    def restore(self, tensors: Tensors) -> None:
        """Takes a checkpoint back."""
        restore_optimizer(self._adam, under("adam", tensors))
        for place, rows in enumerate(self._rows):
            rows.restore(under(f"rows.{place}", tensors))


def _stackings(modules: list[FieldEmbedding]) -> Iterator[tuple[list[nn.Parameter], int]]:
    """Tables in which the same fields are stacked, and how many ids of a row each is read by."""
    found: dict[tuple[tuple[int, ...], int, int], list[nn.Parameter]] = {}
    for module in modules:
        for table, fields, places in module.stackings():
            found.setdefault((fields, len(table), places), []).append(table)
    for (_, _, places), tables in found.items():
        yield tables, places
