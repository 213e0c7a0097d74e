"""The tables of a model as other libraries need them: names, cardinalities and widths, padded to a multiple."""

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
    """Maximum number of values per row; several values are averaged."""
    width: int
    aligned: int
    """The width after padding with columns of zeros."""
    shared: tuple[int, ...] | None = None
    """Positions of its columns in the vector that the tiers of a column share, if they do."""


@dataclass(frozen=True, slots=True)
class Tables:
    """All tables, and the width that FM-type models lift them to."""

    tables: tuple[StoredTable, ...]
    dropped: tuple[str, ...]
    """Fields of width 0, which other libraries should not read."""
    align: int
    common: int | None

    @classmethod
    def of(cls, info: ModelInfo, align: int) -> "Tables":
        """Returns the tables of a model in the order of its fields, padded to multiples of `align`."""
        common = None if info.module else info.model.get("common")
        if common is not None and (type(common) is not int or common < 1):  # FuxiCTR evaluates it as code
            raise RunError(f"The model's 'common' is {common!r:.80}. Allowed: a positive integer. Export it again.")
        return cls(
            tuple(
                StoredTable(
                    f.name,
                    f.cardinality,
                    f.length,
                    f.width,
                    -(-f.width // align) * align,
                    None if f.shared is None else tuple(f.shared),
                )
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
        """Fraction of the padded tables that is padding."""
        return 1 - self.raw / self.aligned if self.aligned else 0.0

    def to_json(self) -> dict[str, Any]:
        """Returns the contents of widths.json."""
        return {
            "format": "fieldwise-widths/1",
            "align": self.align,
            "numbers": {"raw": self.raw, "aligned": self.aligned, "waste": self.waste},
            "common": self.common,
            "fields": [
                {"name": t.field, "cardinality": t.cardinality, "length": t.length, "width": t.width,
                 "aligned": t.aligned, **({} if t.shared is None else {"shared": list(t.shared)})}
                for t in self.tables
            ],
            "dropped": list(self.dropped),
        }  # fmt: skip
