"""An upper bound on the embedding size, in the user's units."""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Annotated, Final, Literal, cast, get_args

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema

from fieldwise.core.automatic import AUTO, Auto
from fieldwise.core.errors import BudgetError
from fieldwise.core.mask import Mask
from fieldwise.core.schema import Layout
from fieldwise.core.store import KINDS, MIXED, Kind, Store

LEAST: Final[dict[Kind, float]] = {"float32": 1 / 2, "float16": 1 / 4, "int8": 1 / 8}
"""For `auto`: the type of a bound above this fraction of the full model in float32; mixed, or int4 with `total`, for
the others."""
Mixed = Literal["mixed"]
Unit = Literal["columns", "parameters", "bytes"]
_SCALES: Final = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "ki": 2**10, "mi": 2**20, "gi": 2**30}
_TEXT: Final = re.compile(
    r"(?P<amount>-?[\d_]*\.?\d+(?:e-?\d+)?)\s*(?P<percent>%)?\s*(?P<scale>(?:[kmg]i?)?)(?P<b>b?)"
    r"(?:\s*(?P<unit>columns?|parameters?|params?|bytes?))?(?:\s+(?P<store>b?float\d+|int\d+|auto|mixed)(?P<row>\s+row)?)?(?:\s+(?P<total>total))?"
    r"(?:\s+align\s+(?P<align>\d+))?",
    re.IGNORECASE,
)
_FORMS: Final = (
    "28 columns, 27k parameters, 25%, 25% columns, 512 KiB, 54 KB int8, 54 KB mixed, 3% bytes auto, 1 MB int8 total, "
    "25% align 4"
)


@dataclass(frozen=True, slots=True, repr=False)
class Budget:
    """At most this many columns, parameters or bytes, or at most this percentage of the full model's.

    Bytes are those of everything stored per id: tables, first-order weights and the scales of integers. A percentage of
    bytes is one of the full model in float32. Columns and parameters count only tables.
    """

    amount: float
    """The bound, an integer; with `share`, a percentage above 0, at most 100."""
    unit: Unit = "columns"
    share: bool = False
    """Whether `amount` is a percentage of the full size."""
    store: Kind | Mixed | Auto = "float32"
    """The stored type of each number, with one scale per column for integers; only bytes depend on it. mixed: int4, and
    int8 for the fields for which the search `elimination` finds it worth the bytes. auto: the type that a run chooses
    for the bound (`typed`)."""
    align: int = 1
    """Widths are multiples of this; a field may also keep its full width, multiple or not."""
    total: bool = False
    """Whether bytes also count the dense layers of the compact model."""
    fits: Callable[[Mask], bool] | None = field(default=None, compare=False, repr=False)
    """A further condition on the kept columns, of a budget with `total` (`searches/total.py`)."""
    int8: tuple[str, ...] = field(default=(), compare=False, repr=False)
    """The fields in int8 of a mixed budget, once a search has chosen them."""

    def __post_init__(self) -> None:
        if self.unit not in get_args(Unit):
            raise BudgetError(f"Budget unit '{self.unit}'. Choose from: {', '.join(get_args(Unit))}.")
        if self.store not in (*KINDS, MIXED, AUTO):
            raise BudgetError(f"Budget store '{self.store}'. Choose from: {', '.join(KINDS)}, {MIXED}, auto.")
        if self.unit != "bytes" and (self.store != "float32" or self.total):
            what = "total" if self.total else self.store
            raise BudgetError(f"Budget of {self.unit} with '{what}'. Only bytes depend on it. Write bytes, or drop it.")
        if self.store == MIXED and self.total:
            raise BudgetError(
                f"Budget of {self}: '{MIXED}' does not count dense layers. Write int4 or int8, or drop total."
            )
        if self.align < 1:
            raise BudgetError(f"Budget align {self.align}. Allowed: 1 or more. TorchRec's sharded tables need 4.")
        top = 100 if self.share else math.inf
        if not 0 < self.amount <= top or math.isinf(self.amount):
            allowed = "above 0%, at most 100%" if self.share else "above 0"
            got = f"{self.amount:g}{'%' * self.share} {self.unit}"
            raise BudgetError(f"Budget of {got}. Allowed: {allowed}. Write it like one of: {_FORMS}.")
        if not self.share and self.amount != int(self.amount):
            or_share = f" For a fraction of the full size, write '{100 * self.amount:g}%'." if self.amount < 1 else ""
            raise BudgetError(f"Budget of {self.amount} {self.unit}. Allowed: an integer. Round it down.{or_share}")

    @classmethod
    def columns(cls, amount: int) -> "Budget":
        """At most `amount` embedding columns over all fields."""
        return cls(amount, "columns")

    @classmethod
    def parameters(cls, amount: int) -> "Budget":
        """At most `amount` numbers in the embedding tables."""
        return cls(amount, "parameters")

    @classmethod
    def bytes(cls, amount: int, store: Kind | Mixed | Auto = "float32", total: bool = False) -> "Budget":
        """At most `amount` bytes of tables and first-order weights, each number stored as `store`.

        With `total`, dense layers count too.
        """
        return cls(amount, "bytes", store=store, total=total)

    @classmethod
    def percent(cls, amount: float, unit: Unit = "parameters") -> "Budget":
        """At most this percentage of the full model's columns, parameters or bytes."""
        return cls(amount, unit, share=True)

    @classmethod
    def parse(cls, text: "BudgetInput") -> "Budget":
        """A budget from text: a bare number counts columns, a bare percentage parameters."""
        if isinstance(text, Budget):
            return text
        found = _TEXT.fullmatch(str(text).strip())
        if found is None:
            raise BudgetError(f"Budget '{text}' is not understood. Write it like one of: {_FORMS}.")
        if found["row"]:
            raise BudgetError(
                f"Budget '{text}' with one scale per row. A budget counts one scale per column. Leave 'row' out, and "
                "export the result with store='int8 row' or 'int4 row'."
            )
        share = found["percent"] is not None
        amount = float(found["amount"].replace("_", "")) * _SCALES[found["scale"].lower()]
        word = (found["unit"] or "").lower()
        if found["b"] or word.startswith("byte"):
            unit: Unit = "bytes"
        elif word.startswith("param") or (share and not word):
            unit = "parameters"
        else:
            unit = "columns"
        store = cast(Kind | Mixed | Auto, (found["store"] or "float32").lower())
        return cls(round(amount, 9), unit, share, store, int(found["align"] or 1), bool(found["total"]))

    def __repr__(self) -> str:
        return f"Budget('{self}')"

    def __str__(self) -> str:
        number = f"{self.amount:.12g}%" if self.share else f"{int(self.amount)}"
        store = f" {self.store}" if self.store != "float32" else ""
        total = " total" if self.total else ""
        align = f" align {self.align}" if self.align > 1 else ""
        return f"{number} {self.unit}{store}{total}{align}"

    @property
    def slug(self) -> str:
        """The budget as a folder name."""
        return str(self).replace("%", "pct").replace(" ", "-")

    @property
    def stored(self) -> Store:
        """How tables are stored; refuses auto, for which `typed` chooses a type."""
        if self.store == AUTO:
            raise BudgetError(
                f"Budget of {self}: only a run or a search of the library's models chooses the stored type. Write it, "
                f"one of: {', '.join(KINDS)}, {MIXED}."
            )
        return Store("int4", int8=self.int8) if self.store == MIXED else Store(self.store)

    def of(self, mask: Mask) -> "Budget":
        """The budget that counts the fields in int8 as the mask says."""
        return replace(self, int8=mask.in_int8)

    def counted(self, linear: Layout | None) -> Layout | None:
        """The first-order weights that the budget counts: each is one more column, which a search may drop."""
        return linear if self.unit == "bytes" and linear and linear.columns else None

    def costs(self, layout: Layout, linear: Layout | None = None) -> NDArray[np.int64]:
        """The cost of each column in the budget's unit, (S,), and of each counted first-order weight after them."""
        if self.unit == "columns":
            return np.ones(layout.columns, dtype=np.int64)
        if self.unit == "parameters":
            return layout.rows
        first = self.counted(linear)
        pairs = zip(self.stored.of(layout.schema.names), layout.schema.cardinalities, strict=True)
        each = np.asarray([store.column(count) for store, count in pairs], dtype=np.int64)
        return each.take(layout.owners if first is None else np.concatenate([layout.owners, first.owners]))

    def full(self, layout: Layout, linear: Layout | None = None) -> int:
        """The size that a percentage is of; bytes are those of float32."""
        return int((replace(self, store="float32") if self.unit == "bytes" else self).costs(layout, linear).sum())

    def typed(self, layout: Layout, linear: Layout | None = None, dense: int = 0) -> "Budget":
        """The budget with a stored type in place of auto, chosen by the bound's fraction of the full float32 bytes.

        At equal bytes, more numbers of fewer bits are better down to int4 (docs/results/bytes.md). `dense` are the
        bytes of the full model's dense layers, for a budget that counts them.
        """
        if self.store != AUTO:
            return self
        full = self.full(layout, linear) + (dense if self.total else 0)
        amount = self.amount_of(full)
        smallest = "int4" if self.total else MIXED
        store = next((kind for kind, least in LEAST.items() if amount > least * full), smallest)
        return replace(self, store=cast(Kind | Mixed, store))

    def amount_of(self, full: int) -> int:
        """The bound as an integer, where the full model has this size."""
        return math.floor(full * self.amount / 100 + 1e-9) if self.share else int(self.amount)

    def limit(self, layout: Layout, linear: Layout | None = None) -> int:
        """The bound as an integer; refuses one below the cheapest column or above the full size."""
        costs, full = self.costs(layout, linear), self._most(layout, linear)
        least = min(int(costs[s]) * min(w, self.align) for s, w in zip(layout.starts, layout.widths, strict=False) if w)
        limit = self.amount_of(self.full(layout, linear))
        if limit > full:
            where = f" in {self.store}" if self.unit == "bytes" else ""
            raise BudgetError(
                f"Budget of {self} ({limit} {self.unit}) is above the full size of {full} {self.unit}{where}. "
                f"Allowed: {least} to {full}. Choose a smaller budget or a wider model."
            )
        if limit < least:
            what = "column" if self.align == 1 else f"{self.align} columns of a field"
            raise BudgetError(
                f"Budget of {self} ({limit} {self.unit}) holds no {what}: the cheapest costs {least}. "
                f"Allowed: {least} to {full}. Choose a larger budget."
            )
        return limit

    def fixed(self, layout: Layout, linear: Layout | None = None) -> "Budget":
        """The same bound as a number instead of a percentage, so that it stays the same for a narrower model."""
        return replace(self, amount=self.limit(layout, linear), share=False)

    def within(self, layout: Layout, linear: Layout | None = None) -> "Budget":
        """The same bound, lowered to the full size of a model that is already smaller."""
        return replace(self, amount=min(self.amount, self._most(layout, linear)))

    def unmixed(self) -> "Budget":
        """The budget in int4 instead of mixed, of a search that does not choose bits."""
        return replace(self, store="int4") if self.store == MIXED else self

    def _most(self, layout: Layout, linear: Layout | None) -> int:
        """The size of all columns; in int8 if bits are mixed."""
        widest = replace(self, int8=layout.schema.names) if self.store == MIXED else self
        return int(widest.costs(layout, linear).sum())

    def aligned(self, full: Layout, widths: tuple[int, ...]) -> tuple[int, ...]:
        """The widths rounded up to the next that `align` allows."""
        return tuple(min(most, -(-w // self.align) * self.align) for most, w in zip(full.widths, widths, strict=True))


BudgetInput = Budget | str | int
"""A budget as Python callers may give it: the object, its text, or a number of columns."""
BudgetText = Annotated[
    Budget,
    BeforeValidator(Budget.parse),
    PlainSerializer(str),
    WithJsonSchema({"type": ["string", "number"], "description": f"A budget: {_FORMS}."}),
]
"""A budget as a setting: text in files, a `Budget` in Python."""
