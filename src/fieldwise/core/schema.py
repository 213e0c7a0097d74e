"""Fields with their cardinalities, and the layout of their embedding columns."""

from collections import Counter
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from fieldwise.core.display import Shown, View
from fieldwise.core.errors import DataError

UNKNOWN: Final = 0
"""The id, in every field, of values that are rare or absent in the training rows."""
PADDING: Final = -1
"""Fills rows that have fewer values of a field than its length."""
Tier = Literal["frequent", "middle", "rare"]
"""Part of a column's values, as a field of its own: the most frequent ones and null, or others."""

ENDS: Final[tuple[Tier, Tier]] = ("frequent", "rare")
"""The tiers that every split column has."""


def tier_name(column: str, tier: Tier) -> str:
    """The name of the field that has one tier of a column's values."""
    return f"{column}:{tier}"


@dataclass(frozen=True, slots=True)
class Field:
    """One categorical input. Its ids are 0 (`unknown`) to cardinality - 1."""

    name: str
    cardinality: int
    length: int = 1
    """Maximum values per row; above 1, they are pooled by their mean."""

    def __post_init__(self) -> None:
        if self.cardinality < 1:
            raise DataError(
                f"Field '{self.name}' has cardinality {self.cardinality}. Allowed: 1 or more. Check the vocabulary."
            )
        if self.length < 1:
            raise DataError(f"Field '{self.name}' has length {self.length}. Allowed: 1 or more values per row.")


@dataclass(frozen=True, slots=True, repr=False)
class Schema(Shown):
    """Named fields in column order."""

    fields: tuple[Field, ...]

    def __post_init__(self) -> None:
        if not self.fields:
            raise DataError("A schema with no fields. Allowed: 1 or more. Add a field.")
        repeated = [name for name, count in Counter(self.names).items() if count > 1]
        if repeated:
            raise DataError(f"Repeated field names: {', '.join(sorted(repeated))}. Names must differ. Rename them.")

    @classmethod
    def of(cls, **cardinalities: int) -> "Schema":
        """A schema from `name=cardinality` pairs."""
        return cls(tuple(Field(name, count) for name, count in cardinalities.items()))

    @property
    def names(self) -> tuple[str, ...]:
        """The field names, in order."""
        return tuple(field.name for field in self.fields)

    @property
    def cardinalities(self) -> tuple[int, ...]:
        """The number of ids of each field, in order."""
        return tuple(field.cardinality for field in self.fields)

    @property
    def lengths(self) -> tuple[int, ...]:
        """Maximum values per row of each field, in order."""
        return tuple(field.length for field in self.fields)

    @property
    def places(self) -> int:
        """Ids per encoded row: the sum of the lengths."""
        return sum(self.lengths)

    @property
    def tiers(self) -> dict[str, tuple[str, ...]]:
        """Each column's fields, in order: the tiers of a column that is split, else the field itself."""
        names, several = set(self.names), {field.name for field in self.fields if field.length > 1}
        found: dict[str, tuple[str, ...]] = {}
        for name in self.names:
            column, _, tier = name.rpartition(":")
            own = tuple(tier_name(column, one) for one in get_args(Tier) if tier_name(column, one) in names)
            split = tier in get_args(Tier) and {own[0], own[-1]} == {tier_name(column, one) for one in ENDS}
            split = split and column not in names and not several.intersection(own)
            found.setdefault(column if split else name, own if split else (name,))
        return found

    def __len__(self) -> int:
        return len(self.fields)

    @property
    def joined(self) -> "Schema":
        """One field for each column of the data: the tiers of a column are one, with one `unknown`; else itself."""
        own = {field.name: field for field in self.fields}
        fields = []
        for column, names in self.tiers.items():
            ids = 1 + sum(own[name].cardinality - 1 for name in names)
            fields.append(own[column] if names == (column,) else Field(column, ids))
        return self if len(fields) == len(self) else Schema(tuple(fields))

    def layout(self, width: int) -> "Layout":
        """The layout in which each column of the data has min(width, its ids) columns; its tiers have one vector."""
        ids = dict(zip(self.tiers.values(), self.joined.cardinalities, strict=True))
        most = {name: count for names, count in ids.items() for name in names}
        return Layout(self, tuple(min(width, most[name]) for name in self.names)).sharing()

    def view(self) -> View:
        """The fields, their cardinalities and, if any has several values per row, their lengths."""
        several = max(self.lengths) > 1
        rows = tuple((f.name, f"{f.cardinality:,}", *([f.length] if several else [])) for f in self.fields)
        heads = ("field", "cardinality", *(["values per row"] if several else []))
        return View(f"Schema: {len(self)} fields, {sum(self.cardinalities):,} ids", (), heads, rows)

    def to_json(self) -> list[dict[str, Any]]:
        """A list of `{"name", "cardinality"}`, with "length" if it is above 1."""
        return [
            {"name": f.name, "cardinality": f.cardinality, **({"length": f.length} if f.length > 1 else {})}
            for f in self.fields
        ]

    @classmethod
    def from_json(cls, values: list[dict[str, Any]]) -> "Schema":
        """The inverse of `to_json`."""
        return cls(tuple(Field(str(v["name"]), int(v["cardinality"]), int(v.get("length", 1))) for v in values))


@dataclass(frozen=True, slots=True, repr=False)
class Layout(Shown):
    """A width, 0 or more, for every field: the S columns of a model, field by field."""

    schema: Schema
    widths: tuple[int, ...]
    shared: tuple[tuple[int, ...], ...] | None = None
    """Where the tiers of a column share one vector: the position in it of each column of each field. None: every field
    has a vector of its own."""

    def __post_init__(self) -> None:
        if len(self.widths) != len(self.schema):
            raise DataError(f"{len(self.widths)} widths for {len(self.schema)} fields. Give one each.")
        if min(self.widths) < 0:
            raise DataError(f"Widths {self.widths}. Allowed: 0 or more each.")
        if self.shared is not None:
            self._check_shared(self.shared)

    def _check_shared(self, shared: tuple[tuple[int, ...], ...]) -> None:
        """Refuses positions that are not ascending, or a vector with a position that no column has."""
        if tuple(map(len, shared)) != self.widths:
            raise DataError(f"Positions {shared!r:.80} for widths {self.widths}. Give one for each column.")
        for column, own in self.members:
            found = sorted({place for j in own for place in shared[j]})
            if found != list(range(len(found))) or any(list(shared[j]) != sorted(set(shared[j])) for j in own):
                given = [list(shared[j]) for j in own]
                raise DataError(f"Positions {given!r:.80} in the vector of '{column}'. Allowed: ascending, from 0 on.")

    @property
    def members(self) -> list[tuple[str, tuple[int, ...]]]:
        """Each column of the data with the indices of its fields."""
        place = {name: j for j, name in enumerate(self.schema.names)}
        return [(column, tuple(place[name] for name in names)) for column, names in self.schema.tiers.items()]

    def sharing(self) -> "Layout":
        """The same columns, where the tiers of a column share one vector, position by position."""
        if len(self.schema.tiers) == len(self.schema):
            return self
        return Layout(self.schema, self.widths, tuple(tuple(range(width)) for width in self.widths))

    def narrowed(self, kept: tuple[tuple[int, ...], ...]) -> "Layout":
        """The layout of some columns of each field, ascending; a shared vector keeps the positions that one has."""
        widths = tuple(len(own) for own in kept)
        if self.shared is None:
            return Layout(self.schema, widths)
        before = [tuple(own[k] for k in one) for own, one in zip(self.shared, kept, strict=True)]
        after = list[tuple[int, ...]](before)
        for _, own in self.members:
            rank = {place: i for i, place in enumerate(sorted({place for j in own for place in before[j]}))}
            for j in own:
                after[j] = tuple(rank[place] for place in before[j])
        return Layout(self.schema, widths, tuple(after))

    @property
    def vectors(self) -> "Layout":
        """What a head reads: one field per column of the data, as wide as its vector; itself if none is shared."""
        if self.shared is None:
            return self
        places = [[place + 1 for j in own for place in self.shared[j]] for _, own in self.members]
        return Layout(self.schema.joined, tuple(max(each, default=0) for each in places))

    @property
    def targets(self) -> NDArray[np.int64]:
        """The column of `vectors` that each column is added to, (S,)."""
        if self.shared is None:
            return np.arange(self.columns)
        starts, found = self.vectors.starts, [np.zeros(0, np.int64)] * len(self.widths)
        for start, (_, own) in zip(starts, self.members, strict=False):
            for j in own:
                found[j] = start + np.asarray(self.shared[j], dtype=np.int64)
        return np.concatenate(found)

    @property
    def columns(self) -> int:
        """S, the total number of columns."""
        return sum(self.widths)

    @property
    def params(self) -> int:
        """Numbers in all tables: the sum of cardinality times width."""
        return int(sum(c * w for c, w in zip(self.schema.cardinalities, self.widths, strict=True)))

    def view(self) -> View:
        """The width of each field."""
        fields = zip(self.schema.fields, self.widths, strict=True)
        rows = tuple((f.name, f"{f.cardinality:,}", width) for f, width in fields)
        title = f"Layout: {len(self.schema)} fields, {self.columns:,} columns, {self.params:,} parameters"
        return View(title, (), ("field", "cardinality", "width"), rows)

    @property
    def starts(self) -> tuple[int, ...]:
        """The first column of each field, and S at the end."""
        return tuple(int(n) for n in np.concatenate([[0], np.cumsum(self.widths)]))

    @property
    def stacked_rows(self) -> tuple[slice, ...]:
        """Each field's rows in the table of its width: fields of equal width are stacked into one table, in order."""
        rows, ends = [], dict.fromkeys(self.widths, 0)
        for width, cardinality in zip(self.widths, self.schema.cardinalities, strict=True):
            start = ends[width]
            ends[width] = start + cardinality
            rows.append(slice(start, ends[width]))
        return tuple(rows)

    @property
    def owners(self) -> NDArray[np.int64]:
        """The field index of every column, (S,)."""
        return np.repeat(np.arange(len(self.schema)), self.widths)

    @property
    def rows(self) -> NDArray[np.int64]:
        """The cardinality of every column's field, (S,): the parameters of a column."""
        return np.asarray(self.schema.cardinalities, dtype=np.int64)[self.owners]
