"""An upper bound on the embedding size, in the user's units."""

import math
import re
from dataclasses import dataclass, replace
from typing import Annotated, Final, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema

from fieldwise.core.errors import BudgetError
from fieldwise.core.schema import Layout

Unit = Literal["columns", "parameters", "bytes"]
ITEM_BYTES: Final = {"float32": 4, "float16": 2, "bfloat16": 2, "int8": 1}
_SCALES: Final = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "ki": 2**10, "mi": 2**20, "gi": 2**30}
_TEXT: Final = re.compile(
    r"(?P<amount>-?[\d_]*\.?\d+(?:e-?\d+)?)\s*(?P<percent>%)?\s*(?P<scale>(?:[kmg]i?)?)(?P<b>b?)"
    r"(?:\s*(?P<unit>columns?|parameters?|params?|bytes?))?(?:\s+(?P<dtype>b?float\d+|int8))?"
    r"(?:\s+align\s+(?P<align>\d+))?",
    re.IGNORECASE,
)
_FORMS: Final = "28 columns, 27k parameters, 512 KiB, 1 MB float16, 25% parameters, 25% columns, 25% align 4"


@dataclass(frozen=True, slots=True, repr=False)
class Budget:
    """At most this many columns, parameters or bytes, or at most this percentage of the full model's."""

    amount: float
    """The bound, an integer; with `share`, a percentage above 0, at most 100."""
    unit: Unit = "columns"
    share: bool = False
    """Whether `amount` is a percentage of the full size."""
    dtype: str = "float32"
    """The stored type of each number; only bytes depend on it."""
    align: int = 1
    """Widths are multiples of this; a field may also keep its full width, multiple or not."""

    def __post_init__(self) -> None:
        if self.unit not in get_args(Unit):
            raise BudgetError(f"Budget unit '{self.unit}'. Choose from: {', '.join(get_args(Unit))}.")
        if self.dtype not in ITEM_BYTES:
            raise BudgetError(f"Budget dtype '{self.dtype}'. Choose from: {', '.join(ITEM_BYTES)}.")
        if self.align < 1:
            raise BudgetError(f"Budget align {self.align}. Allowed: 1 or more. TorchRec's sharded tables need 4.")
        top = 100 if self.share else math.inf
        if not 0 < self.amount <= top or math.isinf(self.amount):
            allowed = "above 0%, at most 100%" if self.share else "above 0"
            got = f"{self.amount:g}{'%' * self.share} {self.unit}"
            raise BudgetError(f"Budget of {got}. Allowed: {allowed}. Write it like one of: {_FORMS}.")
        if not self.share and self.amount != int(self.amount):
            raise BudgetError(f"Budget of {self.amount} {self.unit}. Allowed: an integer. Round it down.")

    @classmethod
    def columns(cls, amount: int) -> "Budget":
        """At most `amount` embedding columns over all fields."""
        return cls(amount, "columns")

    @classmethod
    def parameters(cls, amount: int) -> "Budget":
        """At most `amount` numbers in the embedding tables."""
        return cls(amount, "parameters")

    @classmethod
    def bytes(cls, amount: int, dtype: str = "float32") -> "Budget":
        """At most `amount` bytes of embedding tables, each number stored as `dtype`."""
        return cls(amount, "bytes", dtype=dtype)

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
        share = found["percent"] is not None
        amount = float(found["amount"].replace("_", "")) * _SCALES[found["scale"].lower()]
        word = (found["unit"] or "").lower()
        if found["b"] or word.startswith("byte"):
            unit: Unit = "bytes"
        elif word.startswith("param") or (share and not word):
            unit = "parameters"
        else:
            unit = "columns"
        return cls(round(amount, 9), unit, share, (found["dtype"] or "float32").lower(), int(found["align"] or 1))

    def __repr__(self) -> str:
        return f"Budget('{self}')"

    def __str__(self) -> str:
        number = f"{self.amount:.12g}%" if self.share else f"{int(self.amount)}"
        dtype = f" {self.dtype}" if self.dtype != "float32" else ""
        align = f" align {self.align}" if self.align > 1 else ""
        return f"{number} {self.unit}{dtype}{align}"

    @property
    def slug(self) -> str:
        """The budget as a folder name."""
        return str(self).replace("%", "pct").replace(" ", "-")

    def costs(self, layout: Layout) -> NDArray[np.int64]:
        """The cost of each column in the budget's unit, (S,)."""
        if self.unit == "columns":
            return np.ones(layout.columns, dtype=np.int64)
        return layout.rows * (ITEM_BYTES[self.dtype] if self.unit == "bytes" else 1)

    def limit(self, layout: Layout) -> int:
        """The bound as an integer; refuses one below the cheapest column or above the full size."""
        costs = self.costs(layout)
        full = int(costs.sum())
        least = min(int(costs[s]) * min(w, self.align) for s, w in zip(layout.starts, layout.widths, strict=False) if w)
        limit = math.floor(full * self.amount / 100 + 1e-9) if self.share else int(self.amount)
        if limit > full:
            raise BudgetError(
                f"Budget of {self} is above the full size of {full} {self.unit}. "
                f"Allowed: 1 to {full}. Choose a smaller budget or a wider model."
            )
        if limit < least:
            what = "column" if self.align == 1 else f"{self.align} columns of a field"
            raise BudgetError(
                f"Budget of {self} ({limit} {self.unit}) holds no {what}: the cheapest costs {least}. "
                f"Allowed: {least} to {full}. Choose a larger budget."
            )
        return limit

    def fixed(self, layout: Layout) -> "Budget":
        """The same bound as a number instead of a percentage, so that it stays the same for a narrower model."""
        return replace(self, amount=self.limit(layout), share=False)

    def within(self, layout: Layout) -> "Budget":
        """The same bound, lowered to the full size of a model that is already smaller."""
        return replace(self, amount=min(self.amount, int(self.costs(layout).sum())))

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
