"""How tables are stored: the type of their numbers and the scales of integers, with exact sizes in bytes."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Final, Literal, get_args

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema

from fieldwise.core.errors import SettingsError
from fieldwise.core.plain_files import parse_json
from fieldwise.core.schema import Layout

Kind = Literal["float32", "float16", "int8", "int4"]
By = Literal["column", "row"]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
BITS: Final[dict[Kind, int]] = {"float32": 32, "float16": 16, "int8": 8, "int4": 4}
COLUMN_SCALE: Final = 4
"""Bytes of the scale of a column, a float32."""
ROW_SCALE: Final = 2
"""Bytes of the scale of a row, a float16."""
MIXED: Final = "mixed"
"""Begins the text of int4 tables of which some fields are in int8."""
_FORMS: Final = f"{', '.join(KINDS)}, 'int8 row', 'int4 row', '{MIXED} [\"field\", ...]'"


@dataclass(frozen=True, slots=True)
class Store:
    """The stored type of the numbers in tables and first-order weights.

    Integers are symmetric around zero, with one scale per column of a field or per row. Tables of one column, such as
    first-order weights, always have one scale per column. The layout of each type is in `tables/stored.py`.
    """

    kind: Kind = "float32"
    by: By = "column"
    """What shares a scale; floats have no scales."""
    int8: tuple[str, ...] = ()
    """Fields that are stored in int8, sorted, where the others are in int4 with one scale per column."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "int8", tuple(sorted(set(self.int8))))
        known = self.kind in KINDS and self.by in get_args(By)
        known = known and (not self.int8 or (self.kind == "int4" and self.by == "column"))
        if not known or (self.by == "row" and not self.is_integer):
            raise SettingsError(f"store = '{self}'. Choose from: {_FORMS}.")

    @classmethod
    def parse(cls, text: "str | Store") -> "Store":
        """A store from text, such as "int8" or "int4 row"."""
        if isinstance(text, Store):
            return text
        plain = str(text).strip()
        if plain[: len(MIXED)].lower() == MIXED:
            return cls("int4", int8=_fields(plain[len(MIXED) :]))
        kind, _, by = " ".join(str(text).lower().split()).partition(" ")
        if kind not in KINDS or by not in ("", "column", "row") or (by and not kind.startswith("int")):
            raise SettingsError(f"store = {str(text)[:80]!r}. Choose from: {_FORMS}.")
        return cls(kind, "row" if by == "row" else "column")

    def __str__(self) -> str:
        if self.int8:
            return f"{MIXED} {json.dumps(self.int8, ensure_ascii=False)}"
        return f"{self.kind} row" if self.by == "row" else self.kind

    @property
    def label(self) -> str:
        """The store in tables and on pages, without the names of fields."""
        return "int4 and int8" if self.int8 else str(self)

    def of(self, fields: Sequence[str]) -> "list[Store]":
        """The store of each of these fields."""
        wide, int8, others = set(self.int8), Store("int8"), Store(self.kind, self.by)
        return [int8 if field in wide else others for field in fields]

    @property
    def bits(self) -> int:
        """Bits per number; the smaller, if some fields are in int8."""
        return BITS[self.kind]

    @property
    def is_integer(self) -> bool:
        """Whether numbers are integers with scales."""
        return self.kind.startswith("int")

    @property
    def top(self) -> int:
        """The largest stored integer; the smallest is its negative."""
        return (1 << (self.bits - 1)) - 1

    def scales_rows(self, width: int) -> bool:
        """Whether tables of this width have one scale per row."""
        return self.by == "row" and width > 1

    def column(self, cardinality: int) -> int:
        """Bytes of one column of a field, its scale included; at least what a table's column takes."""
        return -(-cardinality * self.bits // 8) + (COLUMN_SCALE if self.is_integer else 0)

    def bytes(self, layout: Layout) -> int:
        """Bytes of all tables of a layout, scales included."""
        if self.int8:
            return sum(store.bytes(part) for store, part in self.parts(layout))
        numbers = (layout.params * self.bits + 7) // 8
        if not self.is_integer:
            return numbers
        pairs = zip(layout.schema.cardinalities, layout.widths, strict=True)
        return numbers + sum(ROW_SCALE * c if self.scales_rows(w) else COLUMN_SCALE * w for c, w in pairs)

    def parts(self, layout: Layout) -> "list[tuple[Store, Layout]]":
        """The layout, by store: one whose other fields have no columns for each store that a field has."""
        stores = self.of(layout.schema.names)
        found = []
        for store in dict.fromkeys(own for own, width in zip(stores, layout.widths, strict=True) if width):
            pairs = zip(stores, layout.widths, strict=True)
            found.append((store, Layout(layout.schema, tuple(width if own == store else 0 for own, width in pairs))))
        return found


def _fields(text: str) -> tuple[str, ...]:
    """Names of fields from a JSON list."""
    try:
        names = parse_json(text)
    except ValueError:
        names = None
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise SettingsError(
            f"store = '{MIXED}{text[:60]}'. Allowed after {MIXED}: a JSON list of the fields in int8, such as "
            f"'{MIXED} [\"gender\"]'. A budget in bytes with '{MIXED}' or 'auto' chooses them."
        )
    return tuple(names)


FLOAT32: Final = Store()


StoreText = Annotated[
    Store,
    BeforeValidator(Store.parse),
    PlainSerializer(str),
    WithJsonSchema(
        {"type": "string", "anyOf": [{"enum": [*KINDS, "int8 row", "int4 row"]}, {"pattern": rf"^{MIXED} \[.+\]$"}]}
    ),
]
"""A store as a setting: text in files, a `Store` in Python."""
