"""The tables of a model as other libraries see them: names, rows and widths, padded to multiples where asked for."""

from dataclasses import dataclass
from typing import Any

from fieldwise.core.errors import RunError
from fieldwise.exports.info import ModelInfo


@dataclass(frozen=True, slots=True)
class StoredTable:
    """One field that has a table."""

    field: str
    cardinality: int
    length: int
    """How many values a row may hold; above 1 they are pooled by their mean."""
    width: int
    aligned: int
    """The width with columns of zeros behind it, as it is handed over."""


@dataclass(frozen=True, slots=True)
class Tables:
    """All tables, and the width that FM-type models lift them to."""

    tables: tuple[StoredTable, ...]
    dropped: tuple[str, ...]
    """Fields of width 0: other libraries should not read them."""
    align: int
    common: int | None

    @classmethod
    def of(cls, info: ModelInfo, align: int) -> "Tables":
        """The tables of a model, in the order of its fields."""
        common = info.model.get("common")
        if common is not None and (type(common) is not int or common < 1):  # it is written into others' code
            raise RunError(f"The model's 'common' is {common!r:.80}. Allowed: a whole number above 0. Export it again.")
        return cls(
            tuple(
                StoredTable(f.name, f.cardinality, f.length, f.width, -(-f.width // align) * align)
                for f in info.fields
                if f.width
            ),
            tuple(f.name for f in info.fields if not f.width),
            align,
            common,
        )

    @property
    def raw(self) -> int:
        """Numbers in the tables."""
        return sum(table.cardinality * table.width for table in self.tables)

    @property
    def aligned(self) -> int:
        """Numbers in the padded tables."""
        return sum(table.cardinality * table.aligned for table in self.tables)

    @property
    def waste(self) -> float:
        """The share of the padded tables that is padding."""
        return 1 - self.raw / self.aligned if self.aligned else 0.0

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "format": "fieldwise-widths/1",
            "align": self.align,
            "numbers": {"raw": self.raw, "aligned": self.aligned, "waste": self.waste},
            "common": self.common,
            "fields": [
                {"name": t.field, "cardinality": t.cardinality, "length": t.length, "width": t.width,
                 "aligned": t.aligned}
                for t in self.tables
            ],
            "dropped": list(self.dropped),
        }  # fmt: skip
