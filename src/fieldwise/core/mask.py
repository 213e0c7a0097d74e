"""Which columns of which fields are kept."""

from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import BaseModel, ConfigDict, ValidationError

from fieldwise.core.display import Shown, View, share
from fieldwise.core.errors import DataError, MaskError
from fieldwise.core.records import first_problem
from fieldwise.core.schema import Field, Layout, Schema

FORMAT: Final = "fieldwise-mask/1"
_COLUMNS: Final = 2**24
"""Maximum columns of a mask read from a file."""


@dataclass(frozen=True, slots=True, repr=False)
class Mask(Shown):
    """Kept columns per field, over the full model's layout."""

    full: Layout
    kept: tuple[tuple[int, ...], ...]
    """The kept columns of each field, ascending; 0 is the first column of the field."""
    first_order: tuple[int, ...] | None = None
    """1 for each field that keeps its first-order weights, else 0; None: the search left all as they were."""
    int8: tuple[int, ...] | None = None
    """Under a mixed budget, 1 for each field that is stored in int8, else 0; None: the search did not choose."""

    def __post_init__(self) -> None:
        if len(self.kept) != len(self.full.schema):
            raise MaskError(
                f"Kept columns of {len(self.kept)} fields for {len(self.full.schema)} fields. Give one each."
            )
        first = self.first_order
        if first is not None and (len(first) != len(self.kept) or not set(first) <= {0, 1}):
            raise MaskError(f"First-order weights kept: {list(first)[:9]}. Allowed: 0 or 1 for each field.")
        wide = self.int8
        if wide is not None and (len(wide) != len(self.kept) or not set(wide) <= {0, 1}):
            raise MaskError(f"Fields in int8: {list(wide)[:9]}. Allowed: 0 or 1 for each field.")
        for name, width, kept in zip(self.full.schema.names, self.full.widths, self.kept, strict=True):
            if list(kept) != sorted(set(kept)) or (kept and not 0 <= kept[0] <= kept[-1] < width):
                raise MaskError(f"Field '{name}' keeps {list(kept)}. Allowed: ascending columns from 0 to {width - 1}.")

    @classmethod
    def of(cls, full: Layout, vector: ArrayLike, linear: Layout | None = None) -> "Mask":
        """A mask from a vector of S zeros and ones; other values are refused.

        With the layout of first-order weights, the vector has one more value for each field that has them.
        """
        values = np.asarray(vector)
        count = full.columns + (linear.columns if linear else 0)
        if values.shape != (count,):
            raise MaskError(f"A mask of shape {values.shape} for {count} columns. Give ({count},).")
        if not np.isin(values, (0, 1)).all():
            raise MaskError(f"A mask with values {np.unique(values)[:5]}. Allowed: 0 and 1.")
        values, rest = values[: full.columns], values[full.columns :]
        parts = np.split(values.astype(bool), full.starts[1:-1])
        first = None
        if linear:
            each = np.zeros(len(full.schema), dtype=np.int64)
            each[linear.owners] = rest
            first = tuple(int(value) for value in each)
        return cls(full, tuple(tuple(int(k) for k in np.flatnonzero(part)) for part in parts), first)

    @classmethod
    def all(cls, full: Layout) -> "Mask":
        """The mask that keeps every column."""
        return cls.of(full, np.ones(full.columns))

    @property
    def layout(self) -> Layout:
        """The layout of the compact model."""
        return self.full.narrowed(self.kept)

    @property
    def vectors(self) -> "Mask":
        """The mask over what a head reads: a position stays if a column of any tier does."""
        if self.full.shared is None:
            return self
        values = np.zeros(self.full.vectors.columns)
        values[self.full.targets[self.indices]] = 1
        return Mask.of(self.full.vectors, values)

    @property
    def linear(self) -> Layout | None:
        """The layout of the kept first-order weights, if the search chose them."""
        return None if self.first_order is None else Layout(self.full.schema, self.first_order)

    @property
    def in_int8(self) -> tuple[str, ...]:
        """Names of the fields that are stored in int8 under a mixed budget."""
        each = zip(self.full.schema.names, self.int8 or (), strict=False)
        return tuple(sorted(name for name, wide in each if wide))

    def storing(self, int8: tuple[str, ...]) -> "Mask":
        """The same columns, with these fields in int8; of a field that keeps nothing, nothing is stored."""
        names, first = self.full.schema.names, self.first_order or (0,) * len(self.kept)
        stored = [name in int8 and bool(kept or one) for name, kept, one in zip(names, self.kept, first, strict=True)]
        return replace(self, int8=tuple(map(int, stored)))

    @property
    def widths(self) -> tuple[int, ...]:
        """Number of kept columns of each field."""
        return tuple(len(kept) for kept in self.kept)

    @property
    def columns(self) -> int:
        """Number of kept columns of all fields."""
        return sum(self.widths)

    @property
    def params(self) -> int:
        """Numbers in the tables of the compact model."""
        return self.layout.params

    @property
    def indices(self) -> NDArray[np.int64]:
        """Indices of the kept columns among all S, ascending."""
        starts = self.full.starts
        parts = [np.asarray(kept, dtype=np.int64) + starts[j] for j, kept in enumerate(self.kept)]
        return np.concatenate(parts)

    @property
    def vector(self) -> NDArray[np.bool_]:
        """One boolean per column of the full model, (S,)."""
        values = np.zeros(self.full.columns, dtype=np.bool_)
        values[self.indices] = True
        return values

    def over(self, linear: Layout | None) -> NDArray[np.bool_]:
        """One boolean per column, and one per first-order weight of `linear`, if given: the inverse of `of`."""
        if linear is None or self.first_order is None:
            return self.vector
        return np.concatenate([self.vector, np.asarray(self.first_order, dtype=np.bool_)[linear.owners]])

    def then(self, inner: "Mask") -> "Mask":
        """The composition with a mask over this mask's compact layout, as one mask over the full layout."""
        if inner.full != self.layout:
            raise MaskError(f"Cannot compose a mask of widths {self.widths} with one over {inner.full.widths}.")
        values = np.zeros(self.full.columns)
        values[self.indices[inner.indices]] = 1
        first = self.first_order if inner.first_order is None else inner.first_order
        return Mask(self.full, Mask.of(self.full, values).kept, first, inner.int8 or self.int8)

    def on(self, full: Layout) -> "Mask":
        """The same columns over another layout, which may lack, or add, fields of which none are kept."""
        rows = zip(self.full.widths, full.widths, self.kept, strict=False)
        if full.schema != self.full.schema or any(a != b and (min(a, b) or kept) for a, b, kept in rows):
            raise MaskError(
                f"The mask is for widths {self.full.widths}, got a model of widths {full.widths}. They must be "
                "equal. Use the mask of a search on this model."
            )
        return Mask(full, self.kept, self.first_order, self.int8)

    def view(self) -> View:
        """The kept columns of each field."""
        fields = zip(self.full.schema.fields, self.full.widths, self.kept, strict=True)
        size = f"{share(self.columns, self.full.columns)} columns, {share(self.params, self.full.params)} parameters"
        rows = tuple((f.name, f"{f.cardinality:,}", width, len(kept)) for f, width, kept in fields)
        lines = (f"in int8: {', '.join(self.in_int8)}",) if self.in_int8 else ()
        return View(f"Mask: {size}", lines, ("field", "cardinality", "width before", "width after"), rows)

    def to_json(self) -> dict[str, Any]:
        """The mask as plain values, one readable entry per field."""
        rows = zip(self.full.schema.to_json(), self.full.widths, self.kept, strict=True)
        fields = [{**field, "width": width, "kept": list(kept)} for field, width, kept in rows]
        if self.full.shared is not None:
            for field, own in zip(fields, self.full.shared, strict=True):
                field["shared"] = list(own)
        if self.first_order is not None:
            for field, first in zip(fields, self.first_order, strict=True):
                field["first_order"] = first
        if self.int8 is not None:
            for field, wide in zip(fields, self.int8, strict=True):
                field["int8"] = wide
        return {"format": FORMAT, "columns": self.columns, "params": self.params, "fields": fields}

    @classmethod
    def from_json(cls, value: Any) -> "Mask":
        """The inverse of `to_json`."""
        found = value.get("format") if isinstance(value, dict) else None
        if found != FORMAT:
            raise MaskError(f"Not a mask: format {found!r:.80}. Allowed: {FORMAT!r}.")
        try:
            fields = _Fields.model_validate(value).fields
            shared = tuple(tuple(f.shared) for f in fields if f.shared is not None) or None
            full = Layout(Schema(tuple(f.field() for f in fields)), tuple(f.width for f in fields), shared)
            if full.columns > _COLUMNS:
                raise MaskError(f"A mask over {full.columns} columns. Allowed: at most {_COLUMNS}.")
            first = tuple(f.first_order for f in fields if f.first_order is not None) or None
            wide = tuple(f.int8 for f in fields if f.int8 is not None) or None
            return cls(full, tuple(tuple(f.kept) for f in fields), first, wide)
        except ValidationError as error:
            raise MaskError(f"A damaged mask: {first_problem(error)}. Run the search again.") from error
        except DataError as error:
            raise MaskError(f"A damaged mask: {error} Run the search again.") from error


class _Kept(BaseModel):
    """One field's entry in a mask's JSON."""

    model_config = ConfigDict(strict=True)
    name: str
    cardinality: int
    length: int = 1
    width: int
    kept: list[int]
    shared: list[int] | None = None
    first_order: int | None = None
    int8: int | None = None

    def field(self) -> Field:
        """The field."""
        return Field(self.name, self.cardinality, self.length)


class _Fields(BaseModel):
    fields: list[_Kept]
