"""Which columns of which fields are kept."""

from dataclasses import dataclass
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

    def __post_init__(self) -> None:
        if len(self.kept) != len(self.full.schema):
            raise MaskError(
                f"Kept columns of {len(self.kept)} fields for {len(self.full.schema)} fields. Give one each."
            )
        for name, width, kept in zip(self.full.schema.names, self.full.widths, self.kept, strict=True):
            if list(kept) != sorted(set(kept)) or (kept and not 0 <= kept[0] <= kept[-1] < width):
                raise MaskError(f"Field '{name}' keeps {list(kept)}. Allowed: ascending columns from 0 to {width - 1}.")

    @classmethod
    def of(cls, full: Layout, vector: ArrayLike) -> "Mask":
        """A mask from a vector of S zeros and ones; other values are refused."""
        values = np.asarray(vector)
        if values.shape != (full.columns,):
            raise MaskError(f"A mask of shape {values.shape} for {full.columns} columns. Give ({full.columns},).")
        if not np.isin(values, (0, 1)).all():
            raise MaskError(f"A mask with values {np.unique(values)[:5]}. Allowed: 0 and 1.")
        parts = np.split(values.astype(bool), full.starts[1:-1])
        return cls(full, tuple(tuple(int(k) for k in np.flatnonzero(part)) for part in parts))

    @classmethod
    def all(cls, full: Layout) -> "Mask":
        """The mask that keeps every column."""
        return cls.of(full, np.ones(full.columns))

    @property
    def layout(self) -> Layout:
        """The layout of the compact model."""
        return Layout(self.full.schema, self.widths)

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

    def then(self, inner: "Mask") -> "Mask":
        """The composition with a mask over this mask's compact layout, as one mask over the full layout."""
        if inner.full != self.layout:
            raise MaskError(f"Cannot compose a mask of widths {self.widths} with one over {inner.full.widths}.")
        values = np.zeros(self.full.columns)
        values[self.indices[inner.indices]] = 1
        return Mask.of(self.full, values)

    def view(self) -> View:
        """The kept columns of each field."""
        fields = zip(self.full.schema.fields, self.full.widths, self.kept, strict=True)
        size = f"{share(self.columns, self.full.columns)} columns, {share(self.params, self.full.params)} parameters"
        rows = tuple((f.name, f"{f.cardinality:,}", width, len(kept)) for f, width, kept in fields)
        return View(f"Mask: {size}", (), ("field", "cardinality", "width before", "width after"), rows)

    def to_json(self) -> dict[str, Any]:
        """The mask as plain values, one readable entry per field."""
        rows = zip(self.full.schema.to_json(), self.full.widths, self.kept, strict=True)
        fields = [{**field, "width": width, "kept": list(kept)} for field, width, kept in rows]
        return {"format": FORMAT, "columns": self.columns, "params": self.params, "fields": fields}

    @classmethod
    def from_json(cls, value: Any) -> "Mask":
        """The inverse of `to_json`."""
        found = value.get("format") if isinstance(value, dict) else None
        if found != FORMAT:
            raise MaskError(f"Not a mask: format {found!r:.80}. Allowed: {FORMAT!r}.")
        try:
            fields = _Fields.model_validate(value).fields
            full = Layout(Schema(tuple(f.field() for f in fields)), tuple(f.width for f in fields))
            if full.columns > _COLUMNS:
                raise MaskError(f"A mask over {full.columns} columns. Allowed: at most {_COLUMNS}.")
            return cls(full, tuple(tuple(f.kept) for f in fields))
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

    def field(self) -> Field:
        """The field."""
        return Field(self.name, self.cardinality, self.length)


class _Fields(BaseModel):
    fields: list[_Kept]
