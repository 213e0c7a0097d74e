"""What one call of a module shows: how it takes ids, what it returns, its tables, and the fields that each reads."""

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final

import torch
from torch import Tensor, nn

from fieldwise.core.errors import SettingsError
from fieldwise.core.schema import PADDING, Field, Layout, Schema
from fieldwise.pruning import sites
from fieldwise.pruning.example import Example, Sigmoids, evaluating
from fieldwise.pruning.narrow import NarrowFields, NarrowTable
from fieldwise.pruning.sites import Table, Tables
from fieldwise.pruning.use import check_use
from fieldwise.tables.embedding import FieldEmbedding

ROWS: Final = 16
DRAWS: Final = 3
"""Draws of other ids, to see what depends on a field."""
LOGITS: Final = "Allowed: one tensor of logits or probabilities, (rows,) or (rows, 1)."


@dataclass(frozen=True)
class Inside:
    """The inputs, the output and the tables of a module."""

    schema: Schema
    """The fields whose ids the module takes."""
    layout: Layout
    """The columns of its tables. A table that reads one field, and is the only one to do so, has its name."""
    places: tuple[tuple[str, tuple[int, ...]], ...]
    """The path of each table's module, and its fields in the layout."""
    by_name: bool
    """Whether the module takes a mapping from field names to ids, in place of one tensor."""
    probabilities: bool
    """Whether it ends in a sigmoid."""
    first_order: int
    """Numbers in tables of width 1."""

    def inputs(self, ids: Tensor) -> Any:
        """Return the module's argument for ids (B, places)."""
        return named(self.schema, ids.long()) if self.by_name else ids.long()

    def logits(self, module: nn.Module, ids: Tensor) -> Tensor:
        """Return the logits (B,) of ids (B, places)."""
        out: Tensor = module(self.inputs(ids))
        out = out.squeeze(1) if out.dim() == 2 else out
        return torch.logit(out.float(), eps=1e-7) if self.probabilities else out


def look_inside(module: nn.Module, schema: Schema) -> Inside:
    """Run a module on random ids, and return what it shows; refuses a module that cannot be used, in one line."""
    ids = next(draws(schema))
    with torch.no_grad(), evaluating(module):
        by_name, probabilities = _called(module, schema, ids)
    example = Example((named(schema, ids) if by_name else ids,))
    tables = check_use(module, sites.find(module, None, (), width_one=False), example)
    first = sum(table.rows * table.width for table in tables.left if table.why == "width 1")
    places = tuple((site.name, site.fields) for site in tables.sites)
    found = Inside(schema, tables.layout, places, by_name, probabilities, first)
    layout = Layout(_renamed(module, found, tables), tables.layout.widths)
    return Inside(schema, layout, places, by_name, probabilities, first)


def draws(schema: Schema, rows: int = ROWS, seed: int = 0) -> Iterator[Tensor]:
    """Yield random ids (rows, places), again and again; lists have from one value to all."""
    random = torch.Generator().manual_seed(seed)
    while True:
        columns = []
        for field in schema.fields:
            own = torch.randint(0, field.cardinality, (rows, field.length), generator=random)
            count = torch.randint(1, field.length + 1, (rows, 1), generator=random)
            columns.append(torch.where(torch.arange(field.length) < count, own, PADDING))
        yield torch.cat(columns, 1)


def named(schema: Schema, ids: Tensor) -> dict[str, Tensor]:
    """Return ids by field name: (B,), or (B, length) for a field with several values per row."""
    starts = accumulate(schema.lengths, initial=0)
    return {
        field.name: ids[:, start] if field.length == 1 else ids[:, start : start + field.length]
        for field, start in zip(schema.fields, starts, strict=False)
    }


def needs_of(module: nn.Module, inside: Inside) -> tuple[str, ...]:
    """Return the fields that a prediction reads: other ids change the input of a table, or the output."""
    reads = _reads(module, inside)
    return tuple(name for name in inside.schema.names if any(name in fields for fields in reads.values()))


def _called(module: nn.Module, schema: Schema, ids: Tensor) -> tuple[bool, bool]:
    """Return whether the module takes a mapping, and whether it ends in a sigmoid."""
    failed = []
    for by_name in (False, True):
        with Sigmoids() as sigmoids, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns of a tensor that is indexed by a name
            try:
                out = module(named(schema, ids) if by_name else ids)
            except Exception as error:
                line = (str(error).strip().splitlines() or [""])[0]
                failed.append(f"{type(error).__name__}: {line[:120]}")
                continue
        _check_output(type(module).__name__, out, len(ids))
        one = named(schema, ids[:1]) if by_name else ids[:1]
        _check_output(type(module).__name__, module(one), 1)
        return by_name, sigmoids.argument(out) is not out
    hint = f" Lists that are shorter than their length end in {PADDING}." if max(schema.lengths) > 1 else ""
    raise SettingsError(
        f"forward of {type(module).__name__} took neither ids ({len(ids)}, {schema.places}) ({failed[0]}) nor a "
        f"mapping from field names to ids ({failed[1]}).{hint} Take one of them."
    )


def _check_output(name: str, out: Any, rows: int) -> None:
    if not isinstance(out, Tensor):
        kind = type(out).__name__
        what = f"{kind} of {len(out)}" if isinstance(out, Mapping | tuple | list) else kind
        raise SettingsError(f"forward of {name} returned a {what}. {LOGITS} Wrap it in a module that returns one task.")
    if not out.is_floating_point():
        raise SettingsError(f"forward of {name} returned {out.dtype}. {LOGITS} Return what the loss is computed from.")
    if tuple(out.shape) not in ((rows,), (rows, 1)):
        raise SettingsError(f"forward of {name} returned shape {tuple(out.shape)} for {rows} rows. {LOGITS}")


def _renamed(module: nn.Module, inside: Inside, tables: Tables) -> Schema:
    """Return the tables as fields, with the name and length of the field that only this table reads."""
    reads, before = _reads(module, inside), tables.layout.schema.fields
    by_name = {field.name: field for field in inside.schema.fields}
    readers = {name: {path for path, _ in inside.places if reads.get(path) == {name}} for name in by_name}
    fields = list(before)
    for site in tables.sites:
        of = reads.get(site.name, set())
        if len(site.fields) == len(of) == 1:
            (j,), (name,) = site.fields, of
            if readers[name] == set(tables.paths(j)):
                fields[j] = Field(name, before[j].cardinality, by_name[name].length)
    names = [field.name for field in fields]
    return Schema(tuple(f if names.count(f.name) == 1 else old for f, old in zip(fields, before, strict=True)))


def _reads(module: nn.Module, inside: Inside) -> dict[str, set[str]]:
    """Return the fields that change the input of each table, by its path, and those that change the output, at ""."""
    device, lengths = next(module.parameters()).device, list(inside.schema.lengths)
    found: dict[str, set[str]] = {}
    with torch.no_grad(), evaluating(module), _inputs(module) as seen:

        def values(parts: list[Tensor]) -> dict[str, list[Tensor]]:
            seen.clear()
            out = inside.logits(module, torch.cat(parts, 1).to(device))
            return {**seen, "": [out]}

        drawn = draws(inside.schema, seed=1)
        for _ in range(DRAWS):
            ids, others = (list(next(drawn).split(lengths, 1)) for _ in range(2))
            before = values(ids)
            for j, name in enumerate(inside.schema.names):
                after = values([*ids[:j], others[j], *ids[j + 1 :]])
                for path in before:
                    if not _equal(before[path], after.get(path, [])):
                        found.setdefault(path, set()).add(name)
    return found


def _equal(one: list[Tensor], two: list[Tensor]) -> bool:
    pairs = zip(one, two, strict=False)
    return len(one) == len(two) and all(torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in pairs)


@contextmanager
def _inputs(module: nn.Module) -> Iterator[dict[str, list[Tensor]]]:
    """Record the inputs of every table, by its path or that of the narrow module around it."""
    seen: dict[str, list[Tensor]] = {}

    def hook_of(path: str) -> Callable[..., None]:
        def hook(_: nn.Module, args: Any, kwargs: Any) -> None:
            tensors = [given for given in (*args, *kwargs.values()) if isinstance(given, Tensor)]
            seen.setdefault(path, []).extend(tensors)

        return hook

    outer = {id(m.table): path for path, m in module.named_modules() if isinstance(m, NarrowTable | NarrowFields)}
    handles = [
        inner.register_forward_pre_hook(hook_of(outer.get(id(inner), path)), with_kwargs=True)
        for path, inner in module.named_modules()
        if isinstance(inner, Table | FieldEmbedding)
    ]
    try:
        yield seen
    finally:
        for handle in handles:
            handle.remove()
