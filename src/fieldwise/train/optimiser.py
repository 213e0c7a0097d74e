"""How weights are moved: dense weights at every step, rows of large tables when they are read."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Literal

import torch
from torch import Tensor, nn

from fieldwise.models.embedding import FieldEmbedding
from fieldwise.models.reading import Found, Reader, read
from fieldwise.train.checkpoint import Tensors, named, optimiser_tensors, restore_optimiser, under
from fieldwise.train.rows import AdagradRows, AdamRows, Distinct, Rows

Method = Literal["adam", "dense-adam", "rowwise-adagrad"]
"""adam: dense Adam's way, by moving large tables' rows only when they are read; dense-adam: every row at every step;
rowwise-adagrad: tables by row-wise Adagrad, all else by Adam."""

LARGE: Final = {"cpu": 2, "cuda": 64}
"""A table is large that holds so many times the rows that a batch reads: below, moving all its rows is quicker."""


class Optimiser:
    """Adam over a model's weights, of which large tables are read and moved row by row.

    With `dense` every table counts as small: for losses with a gradient in every row.
    """

    def __init__(self, model: nn.Module, method: Method, learning_rate: float, batch: int, dense: bool = False) -> None:
        self._modules = [module for module in model.modules() if isinstance(module, FieldEmbedding)]
        self._tables: dict[nn.Parameter, Rows] = {}
        self._distinct = Distinct()
        for module in self._modules:
            for table, places in module.places():
                large = len(table) > LARGE[table.device.type] * batch * places
                if method == "rowwise-adagrad":
                    self._tables[table] = AdagradRows(table, learning_rate, self._distinct)
                elif method == "adam" and large and not dense:
                    self._tables[table] = AdamRows(table, learning_rate, self._distinct)
        others = [weight for weight in model.parameters() if weight not in self._tables]
        on_gpu = any(weight.is_cuda for weight in others)
        self._adam = torch.optim.Adam(others, lr=learning_rate, fused=True, capturable=on_gpu)

    @property
    def same_shapes(self) -> bool:
        """Whether all steps are alike; rows read of a large table differ in number from step to step."""
        return not self._tables

    @contextmanager
    def reading(self) -> Iterator[None]:
        """While it lasts, the model reads rows up to date; at its end the tables themselves are."""
        for module in self._modules:
            module.reader = self._reader(module)
        try:
            yield
        finally:
            for module in self._modules:
                module.reader = read
            for rows in self._tables.values():
                rows.settle()

    def _reader(self, module: FieldEmbedding) -> Reader:
        def reader(table: nn.Parameter, rows: Tensor) -> Found:
            large = self._tables.get(table)
            if large is not None:
                return large.read(rows, keep=module.training)
            if table.is_cuda:
                return read(table, rows)
            distinct, places = self._distinct(rows, table)
            return Found(table.index_select(0, distinct), places, distinct)

        return reader

    def forget(self) -> None:
        """Drops the last step's gradients."""
        self._adam.zero_grad(set_to_none=True)

    def step(self) -> None:
        """Moves all weights by the gradients that a backward pass has left."""
        self._adam.step()
        for rows in self._tables.values():
            rows.step()

    def tensors(self) -> Tensors:
        """What a checkpoint keeps."""
        tensors = named("adam", optimiser_tensors(self._adam))
        for place, rows in enumerate(self._tables.values()):
            tensors |= named(f"rows.{place}", rows.tensors())
        return tensors

    def restore(self, tensors: Tensors) -> None:
        """Takes a checkpoint back."""
        restore_optimiser(self._adam, under("adam", tensors))
        for place, rows in enumerate(self._tables.values()):
            rows.restore(under(f"rows.{place}", tensors))
