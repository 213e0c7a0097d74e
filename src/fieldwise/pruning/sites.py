"""Find the tables of a module, and arrange their columns as fields."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

import torch
from torch import Tensor, nn

from fieldwise.core.errors import SettingsError
from fieldwise.core.mask import Mask
from fieldwise.core.schema import Field, Layout, Schema
from fieldwise.pruning.narrow import NarrowFields, NarrowTable
from fieldwise.pruning.narrow import Table as Table
from fieldwise.tables.embedding import FieldEmbedding


@dataclass(frozen=True)
class Site:
    """A module whose output's last axis holds the columns of one field, or of several concatenated fields."""

    name: str
    """The module's path in the model."""
    module: nn.Module
    fields: tuple[int, ...]
    """Indices of its fields in the layout, in the order of the output's columns."""

    def cut(self, values: Sequence[Tensor]) -> Tensor:
        """Select this module's part of values that are split by field."""
        return values[self.fields[0]] if len(self.fields) == 1 else torch.cat([values[j] for j in self.fields])

    def kept(self, mask: Mask) -> list[int]:
        """Return the columns of the module's output that a mask keeps."""
        starts = _starts(mask.full.widths[j] for j in self.fields)
        return [start + k for start, j in zip(starts, self.fields, strict=False) for k in mask.kept[j]]

    def tables(self) -> Iterator[tuple[int, Tensor]]:
        """Yield each field and its weights (rows, width)."""
        if isinstance(self.module, FieldEmbedding):
            for place, j in enumerate(self.fields):
                if self.module.layout.widths[place]:
                    yield j, self.module.table(place).detach()
        else:
            weight: Tensor = self.module.get_parameter("weight")
            yield self.fields[0], weight.detach()


@dataclass(frozen=True)
class Skipped:
    """A table that the search does not prune."""

    name: str
    rows: int
    width: int
    why: str


@dataclass(frozen=True)
class Tables:
    """The tables found in a module."""

    layout: Layout
    sites: tuple[Site, ...]
    left: tuple[Skipped, ...]

    def paths(self, field: int) -> list[str]:
        """Return the paths of the modules that output a field's columns."""
        return [site.name for site in self.sites if field in site.fields]

    def lines(self, mask: Mask | None = None) -> list[str]:
        """Format a text table: each field with its size, then the skipped tables."""
        schema, widths = self.layout.schema, self.layout.widths
        size = max(len("field"), *(len(name) for name in schema.names))
        head = f"{'field':{size}}  {'rows':>10}  {'width':>5}{'  kept' if mask else ''}  module"
        found = [head]
        for j, field in enumerate(schema.fields):
            kept = f"  {mask.widths[j]:4}" if mask else ""
            paths = ", ".join(self.paths(j))
            found.append(f"{field.name:{size}}  {field.cardinality:10,}  {widths[j]:5}{kept}  {paths}")
        for why, many in Counter(table.why for table in self.left).items():
            numbers = sum(table.rows * table.width for table in self.left if table.why == why)
            found.append(f"skipped, {why}: {many} tables, {numbers:,} parameters")
        return found


def find(
    model: nn.Module, fields: Mapping[str, str | Sequence[str]] | None, exclude: Sequence[str], width_one: bool
) -> Tables:
    """Find all tables of a module; each distinct weight becomes one field."""
    skipped: list[Skipped] = []
    single: list[tuple[str, Table]] = []
    many: list[tuple[str, FieldEmbedding]] = []
    full = _full_widths(model)
    for name, module in model.named_modules():
        if isinstance(module, FieldEmbedding):
            why = _why_not(name, full.get(id(module), max(module.layout.widths)), exclude, width_one)
            if why:
                skipped.append(Skipped(name, module.layout.params, 1, why))
            else:
                many.append((name, module))
        elif isinstance(module, Table):
            rows, width = module.weight.shape
            why = _why_not(name, full.get(id(module), width), exclude, width_one)
            if why:
                skipped.append(Skipped(name, rows, width, why))
            else:
                single.append((name, module))
    _check_patterns(exclude, [table.name for table in skipped])
    if not single and not many:
        raise SettingsError(_nothing(model, skipped))
    groups = _grouped(single, fields or {})
    return _laid_out(groups, many, tuple(skipped))


def _full_widths(model: nn.Module) -> dict[int, int]:
    """Return the width before pruning of each table in a narrow module: one that has one column left is not skipped."""
    found = {}
    for module in model.modules():
        if isinstance(module, NarrowTable):
            found[id(module.table)] = int(module.embedding_dim)
        elif isinstance(module, NarrowFields):
            found[id(module.table)] = max(module.layout.widths)
    return found


def _why_not(name: str, width: int, exclude: Sequence[str], width_one: bool) -> str:
    """Return why a table is skipped, or an empty string if it is not."""
    if any(fnmatchcase(name, pattern) for pattern in exclude):
        return "excluded"
    return "width 1" if width == 1 and not width_one else ""


def _nothing(model: nn.Module, skipped: Sequence[Skipped]) -> str:
    kind = type(model).__name__
    if skipped:
        reasons = ", ".join(sorted({table.why for table in skipped}))
        return f"All {len(skipped)} tables of {kind} are skipped ({reasons}). Exclude fewer, or set width_one=True."
    return (
        f"{kind} contains no tables. Allowed: nn.Embedding, nn.EmbeddingBag, FieldEmbedding, and TorchRec's unsharded "
        "collections of them. Bare parameters passed to functional.embedding are not found: use nn.Embedding."
    )


def _check_patterns(exclude: Sequence[str], names: list[str]) -> None:
    for pattern in exclude:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise SettingsError(
                f"exclude '{pattern}' matches no table. Give a module path, or a pattern such as 'item.*'."
            )


Groups = list[tuple[str, list[tuple[str, Table]]]]


def _grouped(single: list[tuple[str, Table]], fields: Mapping[str, str | Sequence[str]]) -> Groups:
    """Group tables by field: first the user's groups, then tables that share a weight, then single tables."""
    by_weight: dict[int, list[tuple[str, Table]]] = {}
    for name, table in single:
        by_weight.setdefault(id(table.weight), []).append((name, table))
    left = list(by_weight.values())
    groups: Groups = []
    for field, patterns in fields.items():
        wanted = [patterns] if isinstance(patterns, str) else list(patterns)
        own = [same for same in left if any(fnmatchcase(name, pattern) for name, _ in same for pattern in wanted)]
        if not own:
            known = ", ".join(name for name, _ in single)
            raise SettingsError(
                f"Field '{field}' names {wanted}, which matches no table that is still free. Tables: {known}."
            )
        widths = {table.weight.shape[1] for same in own for _, table in same}
        if len(widths) > 1:
            raise SettingsError(
                f"Field '{field}' groups tables of widths {sorted(widths)}. Allowed: one width. Split the group."
            )
        left = [same for same in left if not any(same is other for other in own)]
        groups.append((field, [pair for same in own for pair in same]))
    names = _short([same[0][0] for same in left], set(fields))
    return groups + list(zip(names, left, strict=True))


def _laid_out(groups: Groups, many: list[tuple[str, FieldEmbedding]], skipped: tuple[Skipped, ...]) -> Tables:
    order: list[Field] = []
    widths: list[int] = []
    sites: list[Site] = []
    for name, tables in groups:
        rows = sum(weight.shape[0] for weight in {id(t.weight): t.weight for _, t in tables}.values())
        sites += [Site(path, table, (len(order),)) for path, table in tables]
        order.append(Field(name, rows))
        widths.append(tables[0][1].weight.shape[1])
    taken = {field.name for field in order}
    for path, module in many:
        names = module.layout.schema.names
        clash = len(many) > 1 or taken & set(names)
        sites.append(Site(path, module, tuple(range(len(order), len(order) + len(names)))))
        for field, width in zip(module.layout.schema.fields, module.layout.widths, strict=True):
            order.append(Field(f"{path}.{field.name}" if clash else field.name, field.cardinality))
            widths.append(width)
    return Tables(Layout(Schema(tuple(order)), tuple(widths)), tuple(sites), skipped)


def _short(paths: list[str], taken: set[str]) -> list[str]:
    """Return the shortest unique suffix of each path that does not start with a number."""
    ends = [[".".join(path.split(".")[-n:]) for n in range(1, path.count(".") + 2)] for path in paths]
    seen = Counter(end for each in ends for end in each)
    return [
        next((e for e in each if seen[e] == 1 and not e.split(".")[0].isdigit() and e not in taken), each[-1])
        for each in ends
    ]


def _starts(widths: Iterable[int]) -> list[int]:
    starts = [0]
    for width in widths:
        starts.append(starts[-1] + width)
    return starts


def without(tables: Tables, left: Mapping[int, str]) -> Tables:
    """Return the tables with some fields skipped, each with a reason; a site is skipped with all its fields."""
    gone = set(left) | {j for site in tables.sites if set(site.fields) & set(left) for j in site.fields}
    rest = [j for j in range(len(tables.layout.schema)) if j not in gone]
    schema, widths = tables.layout.schema, tables.layout.widths
    place = {j: new for new, j in enumerate(rest)}
    layout = Layout(Schema(tuple(schema.fields[j] for j in rest)), tuple(widths[j] for j in rest))
    sites = tuple(
        Site(site.name, site.module, tuple(place[j] for j in site.fields))
        for site in tables.sites
        if not set(site.fields) & gone
    )
    skipped = [
        Skipped(
            schema.names[j], schema.cardinalities[j], widths[j], left.get(j, "shares a module with a skipped field")
        )
        for j in gone
    ]
    return Tables(layout, sites, (*tables.left, *skipped))
