"""A model whose tables are split over processes, and the whole model that the first process writes and reads."""

from collections.abc import Callable, Iterator
from typing import TypeVar, cast

import torch
from torch import Tensor

from fieldwise.core.schema import Layout
from fieldwise.models.model import CTRModel, HeadModel, OwnModel
from fieldwise.processes.ranks import Ranks, acting, current
from fieldwise.tables.embedding import FieldEmbedding
from fieldwise.tables.shards import CHUNK
from fieldwise.tables.state import Tensors

M = TypeVar("M")


def gathered(model: M) -> M:
    """In the first process, the model with all rows of its tables; all processes call it. Others get what they have."""
    return cast(M, _gathered(model)) if isinstance(model, HeadModel) else model


def _gathered(model: HeadModel) -> HeadModel:
    if not any(table.is_apart for table in _tables(model)):
        return model
    ranks, whole = current(), model
    if ranks.rank == 0:
        with acting(Ranks()):
            whole = _built(model.settings, model.layout, model.linear)
        whole.head.load_state_dict(model.head.state_dict())
    with torch.no_grad():
        for part, full in zip(_tables(model), _tables(whole), strict=True):
            for j in (j for j, width in enumerate(part.layout.widths) if width):
                for start, rows in _chunks(part, j):
                    if ranks.rank == 0:
                        full.table(j)[start : start + len(rows)] = rows
    return whole.train(model.training) if whole is not model else model


def spread(load: Callable[[], CTRModel]) -> CTRModel:
    """The model that `load` returns in the first process, with its tables split over all processes."""
    ranks = current()
    if ranks.split_from is None:
        return ranks.from_first(load)
    held: list[HeadModel] = []

    def described() -> tuple[OwnModel, Layout, Layout | None, Tensors, bool]:
        model = load()
        assert isinstance(model, HeadModel)
        held.append(model)
        return model.settings, model.layout, model.linear, model.head.state_dict(), model.training

    settings, layout, linear, head, training = ranks.from_first(described)
    found = _built(settings, layout, linear)
    found.head.load_state_dict(head)
    with torch.no_grad():
        for place, table in enumerate(_tables(found)):
            for j in (j for j, width in enumerate(table.layout.widths) if width):
                _fill(table, j, lambda place=place: list(_tables(held[0]))[place])  # type: ignore[misc]
    return found.train(training)


def _built(settings: OwnModel, layout: Layout, linear: Layout | None) -> HeadModel:
    with torch.random.fork_rng(devices=[]):
        return settings.build(layout, linear)


def _tables(model: HeadModel) -> Iterator[FieldEmbedding]:
    yield model.embedding
    if model.first_order:
        yield model.first_order


def _chunks(part: FieldEmbedding, field: int) -> Iterator[tuple[int, Tensor]]:
    """Rows of one field's table, from all processes if they are split: (first id, rows)."""
    shards, own = part.shards_of(field), part.table(field).detach()
    return iter([(0, own)]) if shards is None else shards[0].chunks(shards[1], own)


def _fill(table: FieldEmbedding, field: int, source: Callable[[], FieldEmbedding]) -> None:
    """Fills this process's rows of one field from the table that the first process has, chunk by chunk."""
    shards, count = table.shards_of(field), table.layout.schema.cardinalities[field]
    own = shards[0].blocks[shards[1]] if shards else range(count)
    for start in range(0, count, CHUNK):
        rows = current().from_first(lambda start=start: source().table(field)[start : start + CHUNK].clone())  # type: ignore[misc]
        first, last = max(start, own.start), min(start + len(rows), own.stop)
        if first < last:
            table.table(field)[first - own.start : last - own.start] = rows[first - start : last - start]
