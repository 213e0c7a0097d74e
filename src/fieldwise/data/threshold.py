"""A label that is a number, and the comparison that makes a click of it: `rating >= 4`."""

import operator
import re
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal

from fieldwise.core.records import Record

_COMPARE: Final[dict[str, Callable[[Any, Any], Any]]] = {
    ">=": operator.ge,
    ">": operator.gt,
    "<=": operator.le,
    "<": operator.lt,
}
_FORM: Final = re.compile(r"(.+?)\s*(>=|<=|>|<)\s*([-+]?[0-9]+(?:\.[0-9]+)?)\s*")


class Threshold(Record):
    """A comparison with a number."""

    sign: Literal[">=", ">", "<=", "<"]
    number: float

    def holds(self, values: Any) -> Any:
        """Compares numbers: arrays, or expressions of an engine."""
        return _COMPARE[self.sign](values, self.number)


def label_of(text: str, columns: Sequence[str]) -> tuple[str, Threshold | None]:
    """Returns the label column and its threshold, if the text is no column but a comparison such as `rating >= 4`."""
    found = _FORM.fullmatch(text)
    if text in columns or found is None or found[1] not in columns:
        return text, None
    return found[1], Threshold.model_validate({"sign": found[2], "number": float(found[3])})
